// Tables: numbers on the right, words when there is nothing, one card a row on a phone.

import { h } from "../lib/dom.js";

/**
 * `columns` is [{label, value: (row) => text or nodes, number: true, class}]; `key(row)` tells rows apart.
 * `empty` is what is said where there are none; `rows` of null shows that they are still loading.
 * `frameClass` of "sheet": rows stay rows on a phone, where there may be dozens of columns.
 * `onRow(row)` is what a click on a row does, besides a link or button in it that does the same for the keyboard.
 */
export function table(columns, rows, { label, key = (row, index) => index, empty = "nothing here", rowClass = () => "", onRow, frameClass = "" } = {}) {
  if (rows === null || rows === undefined) return skeleton();
  if (!rows.length) return h("p", { class: "empty" }, empty);
  return h(
    "div",
    { class: `table-frame ${frameClass}`.trim(), role: "region", "aria-label": label, tabindex: "0" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: classOf(column) }, column.label)))),
      h(
        "tbody",
        {},
        rows.map((row, index) =>
          h(
            "tr",
            { key: String(key(row, index)), class: [rowClass(row), onRow && "opens"].filter(Boolean).join(" ") || null, onclick: onRow && ((event) => void (isMeant(event) && onRow(row))) },
            columns.map((column) => h("td", { class: classOf(column), "data-label": column.label || null }, column.value(row, index))),
          ),
        ),
      ),
    ),
  );
}

/** Not by who clicks something in the row, or marks its text to copy it. A handler that answers false would undo the click. */
const isMeant = (event) => !event.target.closest("a, button, input, label") && getSelection().isCollapsed;

const classOf = (column) => [column.number && "number", column.class].filter(Boolean).join(" ") || null;

export function skeleton(lines = 4) {
  return h("div", { class: "skeleton", "aria-busy": "true", "aria-label": "loading" }, Array.from({ length: lines }, () => h("span")));
}
