// What the pipeline has made of the stream: tables and how fresh they are, questions to them, and plots.

import { get, path, query as queryOf } from "../lib/api.js";
import { h, mount } from "../lib/dom.js";
import { bytes, count, short } from "../lib/format.js";
import { every } from "../lib/live.js";
import { to } from "../lib/router.js";
import { cells } from "../parts/cells.js";
import { errorBox } from "../parts/notice.js";
import { since } from "../parts/since.js";
import { skeleton, table } from "../parts/table.js";
import { tabs } from "../parts/tabs.js";
import { plots } from "./pipeline_plots.js";
import { sql } from "./pipeline_sql.js";

export const title = ([name]) => (name === "sql" ? "SQL" : name === "plots" ? "Plots" : (name ?? "Pipeline"));

const LOOK_MS = 10_000;
const ROWS = 50;

export function show(root, page) {
  const [name] = page.parts;
  const kinds = [
    { label: "Tables", href: to("pipeline"), isOpen: name !== "sql" && name !== "plots" },
    { label: "SQL", href: to("pipeline", "sql"), isOpen: name === "sql" },
    { label: "Plots", href: to("pipeline", "plots"), isOpen: name === "plots" },
  ];
  const place = h("div");
  root.append(h("h1", {}, "Pipeline"), tabs(kinds, "parts of the pipeline"), place);
  if (name === "sql") return sql(place, page);
  if (name === "plots") return plots(place, page);
  return name ? one(place, name, page) : all(place, page);
}

// All tables

function all(root, { signal }) {
  let found = null;
  let error = null;
  const look = every(
    LOOK_MS,
    async () => {
      try {
        found = await get("/v2/tables", { signal });
        error = null;
      } catch (failure) {
        if (failure.name === "AbortError") return;
        error = failure;
      }
      view.update();
    },
    signal,
  );
  const view = mount(root, () => [
    error && errorBox(error, look),
    (!error || found) && tables(found?.tables ?? null),
    found?.root && h("p", { class: "soft small" }, "in ", h("code", {}, found.root)),
  ]);
}

function tables(rows) {
  return table(
    [
      { label: "Table", value: (row) => h("a", { class: "mono", href: to("pipeline", row.name) }, row.name) },
      { label: "What it has", class: "wide", value: (row) => (row.trouble ? h("span", { class: "tag warn", title: row.trouble }, "cannot be read") : h("span", { class: "soft" }, row.about)) },
      { label: "Rows", number: true, value: (row) => h("span", { title: count(row.rows) }, short(row.rows ?? 0)) },
      { label: "Size", number: true, value: (row) => bytes(row.bytes) },
      { label: "Newest row", class: "when", value: newest },
      { label: "Written", class: "when", value: (row) => h("span", {}, since(row.written_ms), row.batch !== undefined && row.batch !== null ? h("span", { class: "soft" }, ` batch ${row.batch}`) : null) },
      { label: "Lag", number: true, value: (row) => lagOf(row.lag) },
    ],
    rows,
    { label: "tables", key: (row) => row.name, empty: "There are no tables yet: slipstream pipeline run makes them." },
  );
}

/** Returns how long ago the newest row is from, or its day where a row is about a whole day. */
const newest = (row) => (row.is_daily && row.newest_ms ? new Date(row.newest_ms).toISOString().slice(0, 10) : since(row.newest_ms));

/** Messages that are in the stream and not yet in the table. */
function lagOf(lag) {
  if (lag === null || lag === undefined) return "–";
  return lag ? h("span", { class: "tag warn" }, `${short(lag)} behind`) : h("span", { class: "soft" }, "none");
}

// One table

async function one(root, name, { signal }) {
  let found = null;
  let info = null;
  let error = null;
  const look = async () => {
    try {
      const [rows, { tables: known }] = await Promise.all([get(path("v2", "tables", name) + queryOf({ limit: ROWS }), { signal }), get("/v2/tables", { signal })]);
      [found, info, error] = [rows, known.find((each) => each.name === name), null];
    } catch (failure) {
      if (failure.name === "AbortError") return;
      error = failure;
    }
    view.update();
  };
  const view = mount(root, () => [
    h("div", { class: "section-head" }, h("h2", { class: "mono" }, name), h("a", { class: "button", href: to("pipeline", "sql", { q: `select *\nfrom ${name}\nlimit 100` }) }, "Ask it with SQL")),
    info && h("p", { class: "soft" }, info.about),
    info && h("p", { class: "facts-line soft" }, h("span", {}, `${count(info.rows)} rows`), h("span", {}, bytes(info.bytes)), h("span", {}, "newest ", newest(info)), h("span", {}, "written ", since(info.written_ms))),
    error && errorBox(error, look),
    found ? drawn(found) : !error && skeleton(8),
  ]);
  await look();
}

function drawn({ name, columns, rows, more }) {
  const shown = columns.filter((column) => !column.name.includes("."));
  return [
    h("h3", {}, more ? `Newest ${count(rows.length)} rows` : `All ${count(rows.length)} rows`),
    cells(shown.map((column) => column.name), null, rows, { label: `newest rows of ${name}`, empty: "It has no rows yet." }),
    h("h3", {}, "Columns"),
    table(
      [
        { label: "Column", value: (column) => h("code", {}, column.name) },
        { label: "Type", value: (column) => h("code", { class: "soft" }, column.type) },
        { label: "Meaning", class: "wide", value: (column) => column.about },
      ],
      columns,
      { label: `columns of ${name}`, key: (column) => column.name },
    ),
  ];
}
