// Rows of a table of the pipeline, or of an answer to SQL: numbers on the right, times short, what is nested as JSON.

import { h } from "../lib/dom.js";
import { table } from "./table.js";

const TIME = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d+)?(Z|\+00:00)?$/;
const TEXT_CHARS = 160;

/** `columns` are names; `numbers` says which of them are numbers. */
export function cells(columns, numbers, rows, { label, empty }) {
  return table(
    columns.map((name, index) => ({ label: name, number: numbers?.[index] ?? rows.some((row) => typeof row[index] === "number"), class: "cell", value: (row) => cell(row[index]) })),
    rows,
    { label, empty, frameClass: "sheet" },
  );
}

function cell(value) {
  if (value === null || value === undefined) return h("span", { class: "soft" }, "–");
  if (typeof value === "number") return h("span", { title: String(value) }, numberText(value));
  if (typeof value === "boolean") return String(value);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const time = TIME.exec(text);
  if (time) return h("span", { class: "when", title: `${text} (UTC)` }, `${time[1]} ${time[2]}`);
  return h("span", { title: text }, text.length > TEXT_CHARS ? text.slice(0, TEXT_CHARS) + "…" : text);
}

/** As it is, for a year or an id is a number too; fractions as far as they can be read. */
const numberText = (value) => (Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(6))));

/** For a spreadsheet. */
export function csv(columns, rows) {
  const quoted = (value) => {
    const text = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(quoted).join(",")).join("\n");
}
