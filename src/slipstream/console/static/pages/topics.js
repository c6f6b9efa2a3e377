// All topics: what comes in, what lies there, who is behind. One of them is topic.js, a message of it message.js.

import { get } from "../lib/api.js";
import { h, mount } from "../lib/dom.js";
import { bytes, count, plural, rate, short, span } from "../lib/format.js";
import { every } from "../lib/live.js";
import { overview, watch } from "../lib/overview.js";
import { remember, to } from "../lib/router.js";
import { isOnNats } from "../lib/server.js";
import { lagBar } from "../parts/lag.js";
import { lost } from "../parts/lost.js";
import { errorBox } from "../parts/notice.js";
import { Stretch } from "../parts/stretch.js";
import { table } from "../parts/table.js";
import { createTopic } from "../parts/topic_forms.js";
import * as message from "./message.js";
import * as topic from "./topic.js";

const LOOK_MS = 3_000;

export const title = (parts) => (parts.length ? parts.join("/") : "Topics");

export async function show(root, context) {
  if (context.parts.length >= 3) return message.show(root, context);
  if (context.parts.length) return topic.show(root, context);
  return showAll(root, context);
}

async function showAll(root, { query, signal }) {
  const state = { topics: null, error: null, search: query.search ?? "", sort: query.sort ?? "name", dead: query.dead === "yes" };
  const stretch = new Stretch(() => view.update());
  const view = mount(root, () => draw(state, { change, create, stretch }));

  const look = every(
    LOOK_MS,
    async () => {
      try {
        state.topics = (await get("/v2/topics", { signal })).topics;
        state.error = null;
      } catch (error) {
        if (error.name === "AbortError") return;
        state.error = error;
      }
      view.update();
    },
    signal,
  );
  watch(() => view.update(), signal);

  function change(values) {
    Object.assign(state, values);
    stretch.restart();
    remember({ search: state.search, sort: state.sort === "name" ? "" : state.sort, dead: state.dead && "yes" });
    view.update();
  }

  async function create() {
    const name = await createTopic();
    if (name) location.hash = to("topics", name);
    else look();
  }
}

function draw(state, { change, create, stretch }) {
  return [
    h("div", { class: "head" }, h("h1", {}, "Topics"), isOnNats() ? null : h("div", { class: "buttons" }, h("button", { type: "button", class: "primary", onclick: create }, "Create a topic"))),
    filters(state, change),
    state.error ? errorBox(state.error) : lost(),
    state.error && !state.topics ? null : rows(state, stretch),
  ];
}

function filters(state, change) {
  return h(
    "form",
    { class: "filters", onsubmit: (event) => event.preventDefault() },
    h("label", {}, "Name", h("input", { type: "search", value: state.search, oninput: (event) => change({ search: event.target.value }), placeholder: "part of it" })),
    h(
      "label",
      {},
      "Sort by",
      h(
        "select",
        { onchange: (event) => change({ sort: event.target.value }) },
        Object.entries({ name: "name", in: "what comes in", lag: "who is behind", size: "size" }).map(([value, label]) => h("option", { value, selected: value === state.sort }, label)),
      ),
    ),
    h("label", { class: "check" }, h("input", { type: "checkbox", checked: state.dead, onchange: (event) => change({ dead: event.target.checked }) }), "dead-letter topics too"),
  );
}

const ORDER = {
  name: (one, other) => one.name.localeCompare(other.name),
  in: (one, other) => (other.stats?.produced_per_s ?? 0) - (one.stats?.produced_per_s ?? 0),
  lag: (one, other) => other.lag - one.lag,
  size: (one, other) => other.bytes - one.bytes,
};

/** Those of the broker, and those that the bus makes beside every topic it works on. */
const isForDead = (name) => name.startsWith("dlq.") || name.endsWith(".DLQ");

function rows(state, stretch) {
  const stats = new Map(overview.now?.topics.map((each) => [each.topic, each]));
  const shown = state.topics
    ?.filter(({ name }) => (state.dead || !isForDead(name)) && name.toLowerCase().includes(state.search.toLowerCase()))
    .map((each) => ({ ...each, stats: stats.get(each.name) }))
    .sort((one, other) => ORDER[state.sort]?.(one, other) || ORDER.name(one, other));
  const list = table(
    [
      { label: "Topic", class: "name", value: (each) => h("a", { href: to("topics", each.name) }, each.name) },
      { label: "In", number: true, value: (each) => rate(each.stats?.produced_per_s) },
      { label: "Messages", number: true, value: (each) => h("span", { title: count(each.messages) }, short(each.messages)) },
      { label: "Size", number: true, value: (each) => bytes(each.bytes) },
      { label: "Partitions", number: true, value: (each) => count(each.partitions) },
      { label: "Kept for", value: (each) => kept(each) },
      { label: "Groups", value: (each) => groups(each) },
      { label: "Dead letters", number: true, value: (each) => dead(each) },
    ],
    stretch.of(shown),
    {
      label: "topics",
      key: (each) => each.name,
      empty: state.topics?.length ? "No topic has such a name." : "There are no topics yet. Create one, produce something, or run slipstream demo.",
      onRow: (each) => (location.hash = to("topics", each.name)),
    },
  );
  return [list, stretch.button(shown)];
}

function kept({ retention_ms: ms, retention_bytes: most }) {
  if (ms === null || ms === undefined) return "–";
  return [ms ? span(ms) : "for ever", most ? `, ${bytes(most)}` : ""];
}

/** One line for each group, the furthest behind first. */
function groups(topic) {
  const found = (topic.stats?.groups ?? []).toSorted((one, other) => other.lag - one.lag);
  if (!found.length) return h("span", { class: "soft" }, topic.groups ? plural(topic.groups, "group") : "none");
  return h(
    "div",
    { class: "lags" },
    found.slice(0, 3).map((group) => [h("a", { href: to("groups", topic.name, group.group) }, group.group), lagBar(group, topic.messages), h("span", { class: "number" }, group.lag ? short(group.lag) : h("span", { class: "soft" }, "0"))]),
    found.length > 3 ? h("span", { class: "soft" }, `and ${count(found.length - 3)} more`) : null,
  );
}

function dead(topic) {
  const number = topic.stats?.dead_letters;
  if (!number) return h("span", { class: "soft" }, "0");
  return h("a", { class: "bad-number", href: to("dead-letters", { topic: topic.name }) }, count(number));
}
