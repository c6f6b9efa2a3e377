// Which messages are on their way, and which do not move.

import { answers } from "../lib/answers.js";
import { query as queryOf } from "../lib/api.js";
import { h, mount } from "../lib/dom.js";
import { count, span } from "../lib/format.js";
import { remember, to } from "../lib/router.js";
import { errorBox } from "../parts/notice.js";
import { since } from "../parts/since.js";
import { inShort, stateTag, toneOf } from "../parts/slip_words.js";
import { pausedSteps } from "../parts/steps.js";
import { table } from "../parts/table.js";
import { tabs } from "../parts/tabs.js";
import * as slip from "./slip.js";

export const title = ([id]) => (id ? id : "Slips");

const STATES = [
  ["", "All"],
  ["under-way", "Under way"],
  ["waiting", "Waiting for somebody"],
  ["stuck", "Stuck"],
  ["completed", "Completed"],
  ["dead-lettered", "Dead letters"],
];
const EMPTY = {
  "": "There are no slips: none has come yet, or no router keeps their history. Send one with slipstream slip submit.",
  "under-way": "Nothing is under way.",
  waiting: "Nothing waits for a person or a signal.",
  stuck: "Nothing is stuck: whatever is under way has moved lately.",
  completed: "None has completed, of those that are kept.",
  "dead-lettered": "None has failed, of those that are kept.",
};
const LOOK_MS = 2_000;
const PAGE = 50;
/** As many as the server lists at once. */
const MOST = 1_000;

export async function show(root, page) {
  if (page.parts.length) return slip.show(root, page);
  list(root, page);
}

function list(root, { query, signal }) {
  const asked = { state: query.state ?? "", search: query.search ?? "", type: query.type ?? "", branches: query.branches ?? "" };
  let limit = PAGE;

  const steps = pausedSteps(signal, () => view.update());
  const address = () => {
    const { state, search, type, branches } = asked;
    return "/v2/slips" + queryOf({ state, search, type, branches: branches && "true", limit });
  };
  const listed = answers(LOOK_MS, address, () => view.update(), signal);
  const ask = (change) => {
    Object.assign(asked, change);
    limit = PAGE;
    remember(asked);
    view.update();
    listed.lookSoon();
  };

  const more = () =>
    limit < MOST
      ? h("p", {}, h("button", { type: "button", onclick: () => ((limit = Math.min(MOST, limit * 3)), listed.look()) }, "Show more"))
      : h("p", { class: "soft" }, `These are the newest ${count(MOST)}: search for others, or ask the table slip_runs.`);

  const view = mount(root, () => {
    const { found, error, look } = listed;
    const rows = found?.slips ?? null;
    return [
      h("h1", {}, "Slips"),
      steps.draw(),
      tabs(
        STATES.map(([state, label]) => ({ label, href: to("slips", { ...asked, state }), isOpen: asked.state === state })),
        "state of slips",
      ),
      filters(asked, found, ask),
      error && errorBox(error, look),
      (!error || rows) && slips(rows, asked),
      found?.more && more(),
    ];
  });
}

function filters(asked, found, ask) {
  const types = [...new Set([asked.type, ...(found?.types ?? [])])].filter(Boolean).sort();
  return h(
    "form",
    { class: "filters", onsubmit: (event) => (event.preventDefault(), ask({})) },
    h(
      "label",
      {},
      "correlationId, or a part of it",
      h("input", { type: "search", name: "search", value: asked.search, size: 28, oninput: (event) => ask({ search: event.target.value.trim() }) }),
    ),
    h(
      "label",
      {},
      "Type",
      h(
        "select",
        { name: "type", onchange: (event) => ask({ type: event.target.value }) },
        h("option", { value: "" }, "all types"),
        types.map((type) => h("option", { value: type, selected: type === asked.type }, type)),
      ),
    ),
    h(
      "label",
      { class: "check" },
      h("input", { type: "checkbox", name: "branches", checked: Boolean(asked.branches), onchange: (event) => ask({ branches: event.target.checked ? "1" : "" }) }),
      "branches too",
    ),
  );
}

function slips(rows, asked) {
  return table(
    [
      { label: "Correlation id", value: (row) => h("a", { class: "mono", href: to("slips", row.correlationId) }, row.correlationId) },
      { label: "Type", value: (row) => h("span", { class: "soft" }, row.type) },
      { label: "State", value: (row) => stateTag(row.state) },
      { label: "Now", class: "wide", value: nowOf },
      { label: "Begun", class: "when", value: (row) => since(row.begunMs) },
      { label: "Moved", class: "when", value: (row) => since(row.movedMs) },
    ],
    rows,
    { label: "slips", key: (row) => row.correlationId, empty: asked.search || asked.type ? "No slip is like that." : EMPTY[asked.state] },
  );
}

function nowOf(row) {
  const [does, reason] = inShort(row);
  const words = row.state === "completed" ? `took ${span(row.movedMs - row.begunMs)}` : does;
  return h("span", { class: `now ${toneOf(row)}` }, h("span", { class: "dot", "aria-hidden": "true" }), h("span", {}, words, reason && h("span", { class: "soft reason" }, reason)));
}
