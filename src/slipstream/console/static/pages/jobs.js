// Download jobs: how far each is, and which have failed.

import { answers } from "../lib/answers.js";
import { query as queryOf } from "../lib/api.js";
import { h, mount } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { remember, to } from "../lib/router.js";
import { jobTag, progress, progressWords } from "../parts/job_progress.js";
import { errorBox } from "../parts/notice.js";
import { since } from "../parts/since.js";
import { table } from "../parts/table.js";
import { tabs } from "../parts/tabs.js";
import * as job from "./job.js";
import * as deadLetters from "./job_dead_letters.js";

export const title = ([id]) => (id === "dead-letters" ? "Dead letters of jobs" : id ? `Job ${id}` : "Jobs");

const STATES = [
  ["", "All"],
  ["queued", "Queued"],
  ["in_progress", "In progress"],
  ["paused", "Paused"],
  ["partial", "Partial"],
  ["completed", "Completed"],
  ["failed", "Failed"],
  ["cancelled", "Cancelled"],
];
const LOOK_MS = 1_500;
const PAGE = 50;

export async function show(root, page) {
  const [id] = page.parts;
  if (id === "dead-letters") return deadLetters.show(root, page);
  if (id) return job.show(root, page);
  list(root, page);
}

function list(root, { query, signal }) {
  const asked = { state: query.state ?? "", tenant: query.tenant ?? "", type: query.type ?? "", before: query.before ?? "" };
  const listed = answers(LOOK_MS, () => "/v2/jobs" + queryOf({ ...asked, limit: PAGE }), () => view.update(), signal);
  const ask = (change) => {
    Object.assign(asked, { before: "" }, change);
    remember(asked);
    listed.lookSoon();
  };

  const view = mount(root, () => {
    const { found, error, look } = listed;
    return [
      h("div", { class: "section-head" }, h("h1", {}, "Jobs"), h("a", { class: "button", href: to("jobs", "dead-letters") }, "Dead letters")),
      tabs(
        STATES.map(([state, label]) => ({ label, href: to("jobs", { ...asked, state, before: "" }), isOpen: asked.state === state, number: numberOf(found, state) })),
        "state of jobs",
      ),
      filters(asked, ask),
      error && errorBox(error, look),
      (!error || found) && jobs(found?.jobs ?? null, asked),
      pages(asked, found),
    ];
  });
}

function numberOf(found, state) {
  if (!found?.counts) return "";
  const { counts } = found;
  const number = state ? (counts[state] ?? 0) : Object.values(counts).reduce((sum, each) => sum + each, 0);
  return number ? count(number) : "";
}

function filters(asked, ask) {
  const box = (name, label) => h("label", {}, label, h("input", { type: "search", name, value: asked[name], oninput: (event) => ask({ [name]: event.target.value.trim() }) }));
  return h("form", { class: "filters", onsubmit: (event) => event.preventDefault() }, box("tenant", "Tenant"), box("type", "Type"));
}

function jobs(rows, asked) {
  const isFiltered = asked.state || asked.tenant || asked.type;
  return table(
    [
      { label: "Job", value: (row) => h("a", { class: "mono when", href: to("jobs", row.job_id) }, row.job_id) },
      { label: "Type", value: (row) => row.job_type },
      { label: "Tenant", value: (row) => row.tenant || h("span", { class: "soft" }, "none") },
      { label: "State", value: (row) => jobTag(row.state) },
      { label: "Progress", class: "progress-cell", value: (row) => h("div", {}, progress(row), h("span", { class: "soft small", title: row.last_error_message }, progressWords(row), row.resources_failed ? [": ", h("code", {}, row.last_error_code)] : null)) },
      { label: "Begun", class: "when", value: (row) => since(row.created_ms) },
    ],
    rows,
    { label: "jobs", key: (row) => row.job_id, empty: isFiltered ? "No job is like that." : "There are no jobs yet. Send one with slipstream jobs submit." },
  );
}

function pages(asked, found) {
  if (!asked.before && !found?.next) return null;
  return h(
    "nav",
    { class: "buttons", "aria-label": "pages" },
    asked.before && h("a", { class: "button", href: to("jobs", { ...asked, before: "" }) }, "Newest"),
    found?.next && h("a", { class: "button", href: to("jobs", { ...asked, before: found.next }) }, "Older"),
  );
}
