// <spark-line>: the last ten minutes of a number, without axes. What it means is said in words beside it.

import { fill, h, s } from "../lib/dom.js";

const WIDTH = 160;
const HEIGHT = 36;

class SparkLine extends HTMLElement {
  #values = [];

  set data(values) {
    this.#values = values;
    if (this.isConnected) this.draw();
  }

  get data() {
    return this.#values;
  }

  connectedCallback() {
    this.draw();
  }

  draw() {
    const values = this.#values;
    const most = Math.max(...values, 0) || 1;
    const step = WIDTH / Math.max(values.length - 1, 1);
    const place = (value, index) => `${(index * step).toFixed(1)},${(HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1)}`;
    const line = values.map(place).join(" ");
    const area = values.length > 1 ? `0,${HEIGHT} ${line} ${WIDTH},${HEIGHT}` : "";
    fill(
      this,
      s(
        "svg",
        { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
        s("polygon", { class: "spark-area", points: area }),
        s("polyline", { class: "spark-line", points: values.length > 1 ? line : "" }),
      ),
    );
  }
}

customElements.define("spark-line", SparkLine);

export const spark = (values) => h("spark-line", { data: values });
