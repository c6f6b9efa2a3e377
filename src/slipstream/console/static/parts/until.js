// <until-time>: how long it is until then, counting down.

import { h } from "../lib/dom.js";
import { exact, span } from "../lib/format.js";

class UntilTime extends HTMLElement {
  static observedAttributes = ["ms"];

  connectedCallback() {
    shown.add(this);
    this.draw();
  }

  disconnectedCallback() {
    shown.delete(this);
  }

  attributeChangedCallback() {
    if (this.isConnected) this.draw();
  }

  draw() {
    const ms = Number(this.getAttribute("ms"));
    const left = ms - Date.now();
    const [title, text] = [exact(ms), left > 0 ? span(left < 10_000 ? Math.ceil(left / 100) * 100 : left) : this.getAttribute("over")];
    if (this.title !== title) this.title = title;
    if (this.textContent !== text) this.textContent = text;
  }
}

const shown = new Set();
setInterval(() => document.hidden || shown.forEach((each) => each.draw()), 250);
customElements.define("until-time", UntilTime);

/** `over` is what is said when the time has come. */
export const until = (ms, over) => h("until-time", { ms, over });
