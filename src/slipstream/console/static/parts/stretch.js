// A long list, a stretch at a time: drawn every second, a page of thousands of rows would stand still.

import { h } from "../lib/dom.js";
import { count } from "../lib/format.js";

const STEP = 100;

export class Stretch {
  /** `changed` draws the page again. */
  constructor(changed) {
    this.changed = changed;
    this.shown = STEP;
  }

  /** From the beginning: another list is asked for. */
  restart() {
    this.shown = STEP;
  }

  of(rows) {
    return rows?.slice(0, this.shown) ?? null;
  }

  /** Nothing where all are shown. */
  button(rows) {
    const left = (rows?.length ?? 0) - this.shown;
    if (left <= 0) return null;
    return h("button", { type: "button", class: "quiet", onclick: () => this.#more() }, `Show ${count(Math.min(this.shown, left))} more of ${count(rows.length)}`);
  }

  /** Twice as many each time: who wants to see all of them gets there. */
  #more() {
    this.shown *= 2;
    this.changed();
  }
}
