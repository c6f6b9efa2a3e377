// <since-time>: how long ago, kept up to date; the exact time on hover and for screen readers.

import { ago, exact, toMs } from "../lib/format.js";
import { h } from "../lib/dom.js";

class SinceTime extends HTMLElement {
  connectedCallback() {
    shown.add(this);
    this.draw();
  }

  disconnectedCallback() {
    shown.delete(this);
  }

  static observedAttributes = ["ms"];

  attributeChangedCallback() {
    if (this.isConnected) this.draw();
  }

  draw() {
    const ms = Number(this.getAttribute("ms"));
    const [title, text] = [exact(ms), ago(ms)];
    // Only what differs: who marks it to copy it keeps it marked.
    if (this.title !== title) this.title = title;
    if (this.textContent !== text) this.textContent = text;
  }
}

const shown = new Set();
setInterval(() => document.hidden || shown.forEach((each) => each.draw()), 1000);
customElements.define("since-time", SinceTime);

/** Nothing where there is no time. */
export const since = (time) => (time === null || time === undefined || time === "" ? "–" : h("since-time", { ms: toMs(time) }));
