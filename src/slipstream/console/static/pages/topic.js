// One topic: who reads it and how far they are, its partitions, its messages, and how it is set.

import { get, path } from "../lib/api.js";
import { h, mount } from "../lib/dom.js";
import { bytes, count, plural, rate, short, span } from "../lib/format.js";
import { every } from "../lib/live.js";
import { overview, watch } from "../lib/overview.js";
import { to } from "../lib/router.js";
import { lagBar, lagLegend, oldest, stateTag, withStill } from "../parts/lag.js";
import { MessageBrowser } from "../parts/message_browser.js";
import { errorBox } from "../parts/notice.js";
import { since } from "../parts/since.js";
import { skeleton, table } from "../parts/table.js";
import { changeTopic, deleteTopic, followServer, produce } from "../parts/topic_forms.js";

const LOOK_MS = 2_000;
const PARTITIONS_SHOWN = 8;

export async function show(root, { parts: [name], query, signal }) {
  const state = { info: null, error: null, allPartitions: false };
  let view = null;
  let look = null;
  const messages = new MessageBrowser({ topic: name, query, signal, changed: () => view?.update() });
  const actions = {
    all: () => {
      state.allPartitions = true;
      view.update();
    },
    produce: async () => {
      const placed = await produce(name);
      if (!placed) return;
      await look();
      if (!messages.following) await messages.look();
    },
    change: async () => (await changeTopic(state.info)) && look(),
    follow: async () => (await followServer(state.info)) && look(),
    remove: async () => {
      if (await deleteTopic(state.info)) location.hash = to("topics");
    },
  };
  view = mount(root, () => draw(name, state, messages, actions));

  look = every(
    LOOK_MS,
    async () => {
      try {
        state.info = await get(path("v2", "topics", name), { signal });
        state.error = null;
        messages.learn(state.info.partitions);
      } catch (error) {
        if (error.name === "AbortError") return;
        state.error = error;
      }
      view.update();
    },
    signal,
  );
  watch(() => view.update(), signal);
}

function draw(name, { info, error, allPartitions }, messages, actions) {
  return [
    h("div", { class: "head" }, h("h1", {}, name), info && isOurs(info) ? buttons(name, actions) : null),
    error ? errorBox(error) : null,
    info
      ? [
          numbers(info),
          h("div", { class: "columns" }, groups(info), partitions(info, allPartitions, actions)),
          messages.draw(),
          settings(info, actions),
        ]
      : error
        ? null
        : skeleton(6),
  ];
}

/** On NATS the console only looks, and of a stream no more is known than how long it keeps what. */
const isOurs = (info) => info.config.retry !== undefined;

function buttons(name, actions) {
  const isDead = name.startsWith("dlq.");
  return h(
    "div",
    { class: "buttons" },
    isDead ? h("a", { class: "button", href: to("dead-letters", { topic: name.slice(4) }) }, "As dead letters") : h("button", { type: "button", class: "primary", onclick: actions.produce }, "Produce a message"),
    h("button", { type: "button", onclick: actions.change }, "Settings"),
    h("button", { type: "button", class: "danger", onclick: actions.remove }, "Delete"),
  );
}

const sum = (rows, name) => rows.reduce((total, row) => total + row[name], 0);

function numbers(info) {
  const stats = overview.now?.topics.find((each) => each.topic === info.name);
  const behind = info.groups.toSorted((one, other) => other.lag - one.lag)[0];
  const facts = [
    ["In", rate(stats?.produced_per_s)],
    ["Messages", short(sum(info.partitions, "messages"))],
    ["Size", bytes(sum(info.partitions, "bytes"))],
    ["Partitions", count(info.partitions.length)],
    ["Kept for", info.config.retention_ms ? span(info.config.retention_ms) : "ever"],
    ["Most behind", behind ? short(behind.lag) : "–"],
    ["Dead letters", stats?.dead_letters ? h("a", { class: "bad-number", href: to("dead-letters", { topic: info.name }) }, count(stats.dead_letters)) : "0"],
  ];
  return h("dl", { class: "strip" }, facts.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value))));
}

function groups(info) {
  const whole = sum(info.partitions, "messages");
  return h(
    "section",
    { "aria-labelledby": "groups" },
    h("h2", { id: "groups" }, "Groups"),
    table(
      [
        { label: "Group", class: "name", value: (each) => h("a", { href: to("groups", info.name, each.group) }, each.group) },
        { label: "How far", class: "bar-cell", value: (each) => lagBar(each, whole) },
        { label: "Lag", number: true, value: (each) => count(each.lag) },
        { label: "Oldest", number: true, value: (each) => oldest(each.oldest_unfinished_age_ms) },
        { label: "State", value: stateTag },
      ],
      withStill(info.groups.map((each) => ({ ...each, topic: info.name }))),
      { label: "groups", key: (each) => each.group, empty: "No group has read it yet. The first fetch or stream of a group makes it.", onRow: (each) => (location.hash = to("groups", info.name, each.group)) },
    ),
    info.groups.length ? lagLegend() : null,
  );
}

function partitions(info, all, actions) {
  const shown = all ? info.partitions : info.partitions.slice(0, PARTITIONS_SHOWN);
  return h(
    "section",
    { "aria-labelledby": "partitions" },
    h("h2", { id: "partitions" }, "Partitions"),
    table(
      [
        { label: "Partition", number: true, value: (each) => each.partition },
        { label: "First offset", number: true, value: (each) => count(each.first_offset) },
        { label: "Next offset", number: true, value: (each) => count(each.next_offset) },
        { label: "Messages", number: true, value: (each) => count(each.messages) },
        { label: "Size", number: true, value: (each) => bytes(each.bytes) },
      ],
      shown,
      { label: "partitions", key: (each) => each.partition },
    ),
    shown.length < info.partitions.length ? h("button", { type: "button", class: "quiet", onclick: actions.all }, `Show all ${count(info.partitions.length)}`) : null,
  );
}

function settings(info, actions) {
  const { config, overrides } = info;
  const kept = [
    ["retention_ms", config.retention_ms ? `Messages are kept for ${span(config.retention_ms)}.` : "Messages are kept for ever."],
    ["retention_bytes", config.retention_bytes ? `Of a partition the newest ${bytes(config.retention_bytes)} are kept.` : "A partition may have any size."],
  ];
  const worked = () => [
    ["expiry_ms", config.expiry_ms ? `The topic is deleted when it was not used for ${span(config.expiry_ms)} and nothing in it is unfinished.` : "The topic is kept however long it is idle."],
    ["hold_unfinished", config.hold_unfinished ? "What a group has not finished is kept past that." : "What a group has not finished by then is lost for it."],
    ["retry", retries(config.retry)],
    ["dead_letters", config.dead_letters ? "What has had its attempts becomes a dead letter." : "What has had its attempts is dropped."],
    ["max_in_flight", config.max_in_flight ? `A group has at most ${plural(config.max_in_flight, "message")} of a partition in flight.` : "A group may have any number of messages in flight."],
    ["max_waiting_messages", waiting(config)],
  ];
  const rows = isOurs(info) ? [...kept, ...worked()] : kept;
  const isSet = (name) => isOurs(info) && (overrides[name] !== undefined || (name === "max_waiting_messages" && overrides.max_waiting_bytes !== undefined));
  return h(
    "section",
    { "aria-labelledby": "settings" },
    h("h2", { id: "settings" }, "Settings"),
    h("ul", { class: "sentences card" }, rows.map(([name, words]) => h("li", {}, words, isSet(name) ? h("span", { class: "tag" }, "set for this topic") : null))),
    isOurs(info) && Object.keys(overrides).length ? h("button", { type: "button", class: "quiet", onclick: actions.follow }, "Follow the server in everything") : null,
    h("p", { class: "soft small" }, "Created ", since(info.created_ms), ", id ", h("code", {}, info.id)),
  );
}

function retries({ max_attempts: attempts, backoff_ms: first, max_backoff_ms: most }) {
  const pauses = first ? `, after pauses of ${span(first)}, doubled up to ${most ? span(most) : "any length"}` : ", at once";
  return `A failed message is tried ${attempts ? plural(attempts, "time") : "again without end"}${pauses}, unless it says otherwise.`;
}

function waiting({ max_waiting_messages: messages, max_waiting_bytes: most }) {
  const limits = [messages && plural(messages, "message"), most && bytes(most)].filter(Boolean);
  return limits.length ? `Producers are held back when ${limits.join(" or ")} of a partition wait for the slowest group.` : "Producers are never held back.";
}
