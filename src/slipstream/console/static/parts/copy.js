// A button that copies a text, such as the same call for curl.

import { h } from "../lib/dom.js";
import { ask } from "./ask.js";
import { toast } from "./notice.js";

export function copyButton(text, label = "Copy") {
  return h("button", { type: "button", class: "quiet", onclick: () => copy(typeof text === "function" ? text() : text) }, label);
}

async function copy(text) {
  if (await copied(text)) return toast("copied");
  await ask({
    title: "Copy it by hand",
    text: "This browser lets no page copy. The text is marked: Ctrl+C, or ⌘C.",
    action: "Done",
    fields: [{ name: "text", label: "The text", type: "textarea", value: text, readonly: true, onfocus: (event) => event.target.select() }],
  });
}

/** The clipboard is there on https and localhost only; elsewhere a browser copies what is marked. */
async function copied(text) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
  }
  const last = document.activeElement;
  const box = h("textarea", { class: "unseen", "aria-hidden": "true" });
  box.value = text;
  document.body.append(box);
  box.select();
  const isDone = document.execCommand("copy");
  box.remove();
  last?.focus();
  return isDone;
}

/** The call that gave what is shown, for a terminal. */
export const curl = (path, method = "GET", body) =>
  `curl -s ${method === "GET" ? "" : `-X ${method} `}'${location.origin}${path.replaceAll("'", "%27")}'` +
  (body === undefined ? "" : ` -H 'Content-Type: application/json' -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`);
