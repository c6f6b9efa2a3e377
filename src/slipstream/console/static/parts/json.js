// JSON as people read it: indented, with names told from values. Text stays text: nothing of it becomes markup.

import { h } from "../lib/dom.js";
import { copyButton } from "./copy.js";

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
/** More would make the browser slow for no eye that reads it. */
const COLOURED_CHARS = 100_000;

export function json(value, label) {
  const text = JSON.stringify(value, null, 2) ?? "null";
  return h(
    "div",
    { class: "json" },
    copyButton(text, "Copy"),
    h("pre", { tabindex: "0", "aria-label": label }, text.length > COLOURED_CHARS ? text : [...coloured(text)]),
  );
}

function* coloured(text) {
  let at = 0;
  for (const found of text.matchAll(TOKEN)) {
    if (found.index > at) yield text.slice(at, found.index);
    const [all, string, colon, word] = found;
    if (string && colon) yield* [h("span", { class: "json-name" }, string), colon];
    else yield h("span", { class: string ? "json-text" : word ? "json-word" : "json-number" }, all);
    at = found.index + all.length;
  }
  if (at < text.length) yield text.slice(at);
}
