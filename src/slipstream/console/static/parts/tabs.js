// A row of links of which one is open: kinds of things in a list, or halves of a page.

import { h } from "../lib/dom.js";

/** `items` is [{label, href, isOpen, number}]. */
export function tabs(items, label) {
  return h(
    "nav",
    { class: "tabs", "aria-label": label },
    items.map(({ label: text, href, isOpen, number }) =>
      h("a", { href, "aria-current": isOpen ? "true" : null }, text, number ? h("span", { class: "soft" }, ` ${number}`) : null),
    ),
  );
}
