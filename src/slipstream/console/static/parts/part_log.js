// What the parts have logged of a slip, where `slipstream up` keeps their logs.

import { get, query } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { copyButton, curl } from "./copy.js";
import { errorBox } from "./notice.js";

/** `section()` is drawn with the page; `lookIfNewer(mark)` asks again where something has happened since. */
export function partLogs(id, signal, changed) {
  const address = "/v2/logs" + query({ about: id });
  let answer = null;
  let error = null;
  let seen = "";

  async function look() {
    try {
      answer = await get(address, { signal });
      error = null;
    } catch (failure) {
      if (failure.name === "AbortError") return;
      error = failure;
    }
    changed();
  }

  return {
    lookIfNewer(mark) {
      if (mark === seen) return;
      seen = mark;
      look();
    },
    section() {
      if (error) return errorBox(error, look);
      if (!answer?.kept) return null;
      return h(
        "section",
        { "aria-labelledby": "log", key: "log" },
        h("div", { class: "section-head" }, h("h2", { id: "log" }, "Log"), copyButton(() => curl(address), "Copy as curl")),
        answer.lines.length ? lines(answer.lines) : h("p", { class: "empty" }, "The parts have logged nothing of it: at the level info they tell of failures and retries."),
      );
    },
  };
}

function lines(found) {
  const width = Math.max(...found.map(({ part }) => part.length));
  return h("pre", { class: "part-lines", tabindex: "0", "aria-label": "log lines" }, found.map(({ part, text }) => `${part.padEnd(width)}  ${text}`).join("\n"));
}
