// A question to the tables in SQL, and its answer. Nothing can be written by it; the questions are kept in this browser.

import { get, post } from "../lib/api.js";
import { h, mount } from "../lib/dom.js";
import { count, plural, span } from "../lib/format.js";
import { remember } from "../lib/router.js";
import { cells, csv } from "../parts/cells.js";
import { copyButton } from "../parts/copy.js";
import { errorBox } from "../parts/notice.js";
import { since } from "../parts/since.js";
import { Stretch } from "../parts/stretch.js";
import { skeleton } from "../parts/table.js";

const EXAMPLES = [
  ["Slowest steps", "select step, sum(attempts) as attempts, round(max(p99_ms)) as p99_ms, sum(errors) as errors\nfrom step_metrics\ngroup by step\norder by p99_ms desc"],
  ["Slips that do not move", "select correlation_id, type, step, kind, since\nfrom stuck_slips\norder by since"],
  ["Downloads by tenant", "select tenant, sum(stored) as stored, sum(failed) as failed, sum(bytes) as bytes\nfrom job_throughput\ngroup by tenant\norder by stored desc"],
  ["Why downloads fail", 'select failure_code, host, sum("count") as letters, max(last_at) as last_at\nfrom dead_letter_causes\ngroup by all\norder by letters desc'],
  ["Jobs that failed", "select job_id, tenant, resources_total as total, resources_failed as failed, last_error_code, updated_at\nfrom job_snapshots\nwhere resources_failed > 0\norder by updated_at desc"],
  ["Messages by topic", "select topic, count(*) as messages, max(timestamp) as newest\nfrom messages\ngroup by topic\norder by messages desc"],
];
const LIMITS = [100, 1_000, 10_000];
const KEPT = 30;
const STORE = "sql-history";

export function sql(root, { query, signal }) {
  let answer = null;
  let error = null;
  let asking = null;
  let names = [];
  const box = h("textarea", {
    id: "sql",
    name: "sql",
    rows: 7,
    spellcheck: "false",
    autocapitalize: "off",
    "aria-describedby": "sql-hint",
    onkeydown: (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      run();
    },
  });
  const limit = h("select", { name: "limit", "aria-label": "rows at most" }, LIMITS.map((each) => h("option", { value: each }, `${count(each)} rows at most`)));
  box.value = query.q ?? kept()[0]?.sql ?? EXAMPLES[0][1];

  const use = (text) => {
    box.value = text;
    box.focus();
    // What is shown was the answer to another question.
    answer = error = null;
    view.update();
  };

  async function run() {
    const asked = box.value.trim();
    if (!asked || asking) return;
    asking = new AbortController();
    error = null;
    view.update();
    remember({ q: asked });
    try {
      const found = await post("/v2/tables/query", { sql: asked, limit: Number(limit.value) }, { signal: AbortSignal.any([signal, asking.signal]), patience: Infinity });
      answer = found;
      stretch.restart();
      keep({ sql: asked, at: Date.now(), rows: found.rows.length, more: found.more });
    } catch (failure) {
      error = failure.name === "AbortError" ? { message: "Stopped: nobody waits for the answer any more.", code: "nothing was changed" } : failure;
      answer = null;
    } finally {
      asking = null;
    }
    if (!signal.aborted) view.update();
  }

  const stretch = new Stretch(() => view.update());
  const side = h("div", { class: "sql-side" });
  const place = h("div");
  root.append(
    h(
      "div",
      { class: "sql" },
      h(
        "form",
        { onsubmit: (event) => (event.preventDefault(), run()) },
        h("label", { for: "sql", class: "unseen" }, "SQL"),
        box,
        h("div", { class: "buttons" }, h("button", { class: "primary", name: "run" }, "Run"), h("button", { type: "button", name: "stop", onclick: () => asking?.abort() }, "Stop waiting"), limit, h("span", { id: "sql-hint", class: "soft small" }, "Ctrl+Enter runs it; tables are only read")),
      ),
      side,
    ),
    place,
  );
  const sideView = mount(side, () => [examples(use), tableNames(names, box), past(use, () => sideView.update())]);
  const view = mount(place, () => {
    sideView.update();
    root.querySelector("button[name=stop]").disabled = !asking;
    if (asking) return skeleton(5);
    return error ? errorBox(error) : answer && answered(answer, stretch);
  });
  get("/v2/tables", { signal })
    .then(({ tables }) => {
      names = tables.map((each) => each.name);
      sideView.update();
    })
    .catch((failure) => {
      if (failure.name === "AbortError") return;
      error = failure; // there is nothing to ask then, and why is said
      view.update();
    });
}

function answered({ columns, numbers, rows, more, took_ms: took }, stretch) {
  const said = more ? `the first ${count(rows.length)} rows: there are more` : plural(rows.length, "row");
  return [
    h("div", { class: "buttons" }, h("span", { class: "soft", role: "status" }, `${said} · ${span(took)}`), copyButton(() => csv(columns, rows), "Copy as CSV")),
    cells(columns, numbers, stretch.of(rows), { label: "answer", empty: "No rows: nothing is like that." }),
    stretch.button(rows),
  ];
}

function examples(use) {
  return h("div", { key: "examples" }, h("h3", {}, "Examples"), h("ul", { class: "plain" }, EXAMPLES.map(([name, text]) => h("li", {}, h("button", { type: "button", class: "link", title: text, onclick: () => use(text) }, name)))));
}

function tableNames(names, box) {
  if (!names.length) return null;
  const insert = (name) => {
    box.setRangeText(name, box.selectionStart, box.selectionEnd, "end");
    box.focus();
  };
  return h("details", { key: "tables" }, h("summary", {}, `${names.length} tables`), h("div", { class: "chips" }, names.map((name) => h("button", { type: "button", class: "link mono small", onclick: () => insert(name) }, name))));
}

function past(use, changed) {
  const found = kept();
  if (!found.length) return null;
  return h(
    "details",
    { class: "past", key: "past" },
    h("summary", {}, "Asked before"),
    h("ol", { class: "plain" }, found.map((each) => h("li", {}, h("button", { type: "button", class: "link mono small", title: each.sql, onclick: () => use(each.sql) }, each.sql.replace(/\s+/g, " ")), h("span", { class: "soft small" }, `${plural(each.rows, "row")}${each.more ? " and more" : ""}, `, since(each.at))))),
    h("button", { type: "button", class: "quiet small", onclick: () => (forget(), changed()) }, "Forget them"),
  );
}

// Kept in this browser, and nowhere else

let inMemory = [];

function kept() {
  try {
    return JSON.parse(localStorage.getItem(STORE) ?? "[]");
  } catch {
    return inMemory;
  }
}

function keep(question) {
  inMemory = [question, ...kept().filter((each) => each.sql !== question.sql)].slice(0, KEPT);
  try {
    localStorage.setItem(STORE, JSON.stringify(inMemory));
  } catch {
    // a browser that keeps nothing: they are there until the page is closed
  }
}

function forget() {
  inMemory = [];
  try {
    localStorage.removeItem(STORE);
  } catch {
    // nothing was kept
  }
}
