// The failed attempts at a message, one row each: when, how long, which worker, what went wrong. Tracebacks open below.

import { h } from "../lib/dom.js";
import { count, span } from "../lib/format.js";
import { since } from "./since.js";
import { table } from "./table.js";

/** `history` is what the server kept, oldest first; `attempts` is how many there were. */
export function attemptRows(history, attempts) {
  return [
    table(
      [
        { label: "Attempt", number: true, value: (each) => count(each.number) },
        { label: "Ended", class: "nowrap", value: (each) => since(each.ended_ms) },
        { label: "Took", number: true, value: (each) => span(each.duration_ms) },
        { label: "Worker", class: "name", value: (each) => h("code", {}, each.worker) },
        { label: "Error", class: "wide", value: (each) => each.error },
      ],
      history,
      { label: "attempts", key: (each) => each.number },
    ),
    history.length < attempts ? h("p", { class: "soft small" }, `Of ${count(attempts)} attempts the first and the newest are kept.`) : null,
    history.filter((each) => each.traceback).map((each) => h("details", { class: "traceback", key: `traceback ${each.number}` }, h("summary", {}, `Traceback of attempt ${count(each.number)}`), h("pre", { tabindex: "0" }, each.traceback))),
  ];
}
