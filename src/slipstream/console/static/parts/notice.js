// What is said to the person: errors where they happened, and short words about what was done.

import { h } from "../lib/dom.js";

/** An error in words, with the request id that the server's log has too. */
export function errorBox(error, again) {
  return h(
    "div",
    { class: "error-box", role: "alert" },
    h("p", {}, error.message),
    h("p", { class: "soft" }, error.code ? `${error.code}` : "a mistake of this page", error.requestId ? [" · request ", h("code", {}, error.requestId)] : ""),
    again && h("button", { type: "button", onclick: again }, "Try again"),
  );
}

const SHOWN_MS = 6_000;

/** What went wrong stays until somebody has read it: the request id in it is wanted elsewhere. */
export function toast(text, level = "done") {
  const isError = level === "error";
  const close = isError && h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: () => box.remove() }, "✕");
  const box = h("div", { class: `toast ${level}` }, h("p", {}, text), close);
  document.getElementById("toasts").append(box);
  if (!isError) setTimeout(() => box.remove(), SHOWN_MS);
}

/** Runs what a button does: busy meanwhile, once at a time, and an error is said. Returns whether it went well. */
export async function act(event, work, done) {
  const button = event?.submitter ?? event?.currentTarget;
  if (button?.hasAttribute("aria-busy")) return false;
  button?.setAttribute("aria-busy", "true");
  try {
    const answer = await work();
    if (done) toast(typeof done === "function" ? done(answer) : done);
    return true;
  } catch (error) {
    toast(error.requestId ? `${error.message} (request ${error.requestId})` : error.message, "error");
    return false;
  } finally {
    button?.removeAttribute("aria-busy");
  }
}
