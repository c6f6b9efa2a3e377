// What was given up, of all jobs: by cause, and sent back by selection.

import { answers } from "../lib/answers.js";
import { query as queryOf } from "../lib/api.js";
import { h, mount } from "../lib/dom.js";
import { count, plural } from "../lib/format.js";
import { remember, to } from "../lib/router.js";
import { meaningOf } from "../parts/failure_codes.js";
import { errorBox } from "../parts/notice.js";
import { deal } from "../parts/replay.js";
import { since } from "../parts/since.js";
import { skeleton, table } from "../parts/table.js";
import { grouped, hostOf } from "./job.js";

const LOOK_MS = 5_000;
const MOST = 1_000;
const SHOWN = 100;
const FIELDS = [
  ["code", "Code, or how it begins"],
  ["job_id", "Job"],
  ["tenant", "Tenant"],
  ["job_type", "Type"],
];

export function show(root, { query, signal }) {
  const asked = Object.fromEntries(FIELDS.map(([name]) => [name, query[name] ?? ""]));
  asked.hours = query.hours ?? "";
  const address = () => "/v2/job-dead-letters" + queryOf({ ...selectionOf(asked), limit: MOST });
  const listed = answers(LOOK_MS, address, () => view.update(), signal);
  const ask = (change) => {
    Object.assign(asked, change);
    remember(asked);
    listed.lookSoon();
  };

  const view = mount(root, () => {
    const { found, error, look } = listed;
    return [
      h("div", { class: "page-head" }, h("p", { class: "crumbs" }, h("a", { href: to("jobs") }, "Jobs"), " /"), h("h1", {}, "Dead letters of jobs")),
      filters(asked, ask),
      error && errorBox(error, look),
      found ? drawn(found, asked, look, ask) : !error && skeleton(),
    ];
  });
}

/** What is empty does not matter; hours are those since it failed. */
function selectionOf({ hours, ...given }) {
  const select = Object.fromEntries(Object.entries(given).filter(([, value]) => value));
  return hours ? { ...select, since_ms: Math.round(Date.now() - Number(hours) * 3_600_000) } : select;
}

function filters(asked, ask) {
  return h(
    "form",
    { class: "filters", onsubmit: (event) => event.preventDefault() },
    FIELDS.map(([name, label]) => h("label", {}, label, h("input", { type: "search", name, size: 15, value: asked[name], oninput: (event) => ask({ [name]: event.target.value.trim() }) }))),
    h(
      "label",
      {},
      "Failed",
      h(
        "select",
        { name: "hours", onchange: (event) => ask({ hours: event.target.value }) },
        [["", "whenever"], ["1", "in the last hour"], ["24", "in the last day"], ["168", "in the last week"]].map(([value, label]) => h("option", { value, selected: value === asked.hours }, label)),
      ),
    ),
  );
}

function drawn({ letters, total }, asked, look, ask) {
  const isFiltered = Object.values(asked).some(Boolean);
  if (!total) return h("p", { class: isFiltered ? "empty" : "quiet-line" }, isFiltered ? "No dead letter is like that." : "No dead letters: whatever was asked for is stored, or still tried.");
  const what = isFiltered ? "of this selection" : "of all jobs";
  const dealAll = (discard) => (event) => deal(event, { select: selectionOf(asked), what, discard, done: look });
  return [
    h(
      "div",
      { class: "buttons" },
      h("strong", {}, plural(total, "dead letter")),
      h("button", { type: "button", class: "primary", onclick: dealAll(false) }, isFiltered ? "Replay this selection…" : "Replay all…"),
      h("button", { type: "button", class: "danger", onclick: dealAll(true) }, isFiltered ? "Discard this selection…" : "Discard all…"),
      total > letters.length && h("span", { class: "soft" }, `the newest ${count(letters.length)} are shown; what is done is done to all`),
    ),
    h("h2", {}, "By cause"),
    causes(letters, asked, look, ask),
    h("h2", {}, "Newest"),
    newest(letters.slice(0, SHOWN), look),
    letters.length > SHOWN && h("p", { class: "soft" }, `The newest ${SHOWN} are listed: select by code, job or tenant to see others.`),
  ];
}

function causes(letters, asked, look, ask) {
  return table(
    [
      { label: "Code", value: ({ name }) => h("div", {}, h("button", { type: "button", class: "link mono", onclick: () => choose(name, ask) }, name), h("span", { class: "soft small block" }, meaningOf(name))) },
      { label: "Letters", number: true, value: ({ rows }) => count(rows.length) },
      { label: "Jobs", number: true, value: ({ rows }) => count(new Set(rows.map((row) => row.job_id)).size) },
      { label: "Hosts", value: ({ rows }) => hostsOf(rows) },
      { label: "Newest", class: "when", value: ({ rows }) => since(Math.max(...rows.map((row) => row.failed_at_ms))) },
      {
        label: "",
        class: "row-buttons",
        value: ({ name }) => h("div", {}, [
          h("button", { type: "button", class: "link when", "aria-label": `Replay those with ${name}`, onclick: (event) => deal(event, { select: { ...selectionOf(asked), code: name }, what: `with ${name}`, done: look }) }, "Replay…"),
          h("button", { type: "button", class: "link when", "aria-label": `Discard those with ${name}`, onclick: (event) => deal(event, { select: { ...selectionOf(asked), code: name }, what: `with ${name}`, discard: true, done: look }) }, "Discard…"),
        ]),
      },
    ],
    grouped(letters, (letter) => letter.code),
    { label: "dead letters by cause", key: ({ name }) => name },
  );
}

function choose(code, ask) {
  document.querySelector("input[name=code]").value = code;
  ask({ code });
}

function hostsOf(rows) {
  const hosts = grouped(rows, (row) => hostOf(row.url));
  const shown = hosts.slice(0, 3).map(({ name, rows: found }) => `${name} (${count(found.length)})`);
  return shown.join(", ") + (hosts.length > 3 ? ` and ${hosts.length - 3} more` : "");
}

function newest(letters, look) {
  return table(
    [
      { label: "Failed", class: "when", value: (letter) => since(letter.failed_at_ms) },
      { label: "Resource", value: (letter) => h("div", {}, h("code", {}, letter.resource_id), h("a", { class: "small block mono when", href: to("jobs", letter.job_id) }, letter.job_id)) },
      { label: "URL", class: "wide", value: (letter) => h("code", { class: "soft" }, letter.url) },
      { label: "Why", class: "wide", value: (letter) => h("span", {}, h("code", {}, letter.code), " ", letter.message) },
      { label: "Attempts", number: true, value: (letter) => count(letter.attempts) },
      {
        label: "",
        value: (letter) =>
          h(
            "button",
            { type: "button", class: "link small when", "aria-label": `Replay ${letter.resource_id} of ${letter.job_id}`, onclick: (event) => deal(event, { select: { job_id: letter.job_id, resource_id: letter.resource_id }, what: `of ${letter.resource_id}`, done: look }) },
            "replay…",
          ),
      },
    ],
    letters,
    { label: "newest dead letters", key: (letter) => `${letter.partition}/${letter.offset}` },
  );
}
