// What is shown is from before: said wherever the live numbers are, for as long as the connection is away.

import { h } from "../lib/dom.js";
import { overview } from "../lib/overview.js";
import { since } from "./since.js";

export function lost() {
  if (overview.state !== "lost" || !overview.now) return null;
  return h(
    "div",
    { class: "error-box", role: "alert" },
    h("p", {}, "The server does not answer: is it running, and can this browser reach it?"),
    h("p", { class: "soft" }, "What is shown is what it said last, ", since(overview.heardMs), ". The page goes on by itself."),
  );
}
