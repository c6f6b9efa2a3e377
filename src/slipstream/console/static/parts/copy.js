// A button that copies a text, such as the same call for curl.

import { h } from "../lib/dom.js";
import { toast } from "./notice.js";

export function copyButton(text, label = "Copy") {
  return h("button", { type: "button", class: "quiet", onclick: () => copy(typeof text === "function" ? text() : text) }, label);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("copied");
  } catch {
    // Not on https or localhost: then the person copies it by hand.
    toast(`copy this: ${text}`);
  }
}

/** The call that gave what is shown, for a terminal. */
export const curl = (path, method = "GET", body) =>
  `curl -s ${method === "GET" ? "" : `-X ${method} `}'${location.origin}${path.replaceAll("'", "%27")}'` +
  (body === undefined ? "" : ` -H 'Content-Type: application/json' -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`);
