// <spark-line>: the last ten minutes of a number, without axes. What it means is said in words beside it.

import { fill, h, s } from "../lib/dom.js";

const WIDTH = 160;
const HEIGHT = 36;
const SPAN_MS = 10 * 60 * 1000;

class SparkLine extends HTMLElement {
  #data = { values: [], times: [], now: 0 };

  set data(data) {
    this.#data = data;
    if (this.isConnected) this.draw();
  }

  get data() {
    return this.#data;
  }

  connectedCallback() {
    this.draw();
  }

  draw() {
    const { values, times, now } = this.#data;
    const most = Math.max(...values, 0) || 1;
    // By time: a server that has just begun has its minute on the right, and nothing before it.
    const across = (time) => Math.max(0, WIDTH * (1 - (now - time) / SPAN_MS)).toFixed(1);
    const up = (value) => (HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1);
    const line = values.map((value, index) => `${across(times[index])},${up(value)}`);
    if (line.length) line.push(`${WIDTH},${up(values.at(-1))}`);
    fill(
      this,
      s(
        "svg",
        { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
        s("polygon", { class: "spark-area", points: line.length ? [`${across(times[0])},${HEIGHT}`, ...line, `${WIDTH},${HEIGHT}`].join(" ") : "" }),
        s("polyline", { class: "spark-line", points: line.join(" ") }),
      ),
    );
  }
}

customElements.define("spark-line", SparkLine);

export const spark = (values, times, now) => h("spark-line", { data: { values, times, now } });
