// One group of a topic: how far it is in each partition, what it has in flight, and moving it.

import { get, path } from "../lib/api.js";
import { lastOf } from "../lib/causes.js";
import { h, mount } from "../lib/dom.js";
import { count, plural, rate, span } from "../lib/format.js";
import { every } from "../lib/live.js";
import { overview, watch } from "../lib/overview.js";
import { to } from "../lib/router.js";
import { isOnNats } from "../lib/server.js";
import { forgetGroup, pauseGroup, resumeGroup, seekGroup } from "../parts/group_forms.js";
import { lagBar, lagLegend, oldest, stateTag, withStill } from "../parts/lag.js";
import { messageActions, releaseOwner } from "../parts/message_actions.js";
import { act, errorBox } from "../parts/notice.js";
import { since } from "../parts/since.js";
import { skeleton, table } from "../parts/table.js";
import { until } from "../parts/until.js";

const LOOK_MS = 1_000;

export async function show(root, { parts: [topic, group], signal }) {
  const state = { info: null, partitions: new Map(), error: null };
  let look = null;
  const actions = {
    pause: async () => (await pauseGroup(state.info)) && look(),
    resume: async (event) => (await act(event, () => resumeGroup(state.info), (words) => words)) && look(),
    seek: async () => (await seekGroup(state.info)) && look(),
    release: async () => (await releaseOwner(state.info)) && look(),
    changed: () => look(),
    forget: async () => {
      if (await forgetGroup(state.info)) location.hash = to("groups");
    },
  };
  const view = mount(root, () => draw(topic, group, state, actions));
  look = every(
    LOOK_MS,
    async () => {
      try {
        const [info, log] = await Promise.all([get(path("v2", "topics", topic, "groups", group), { signal }), get(path("v2", "topics", topic), { signal })]);
        state.info = info;
        state.partitions = new Map(log.partitions.map((each) => [each.partition, each]));
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
}

function draw(topic, group, { info, partitions, error }, actions) {
  return [
    h("div", { class: "head" }, h("h1", {}, h("a", { href: to("topics", topic) }, topic), ` / ${group} `, info ? stateTag(withStill([{ ...info, topic, group }])[0]) : null), info ? buttons(info, actions) : null),
    error ? errorBox(error) : null,
    info
      ? [
          numbers(info),
          info.lost ? h("p", { class: "warn-line" }, `${plural(info.lost, "message")} were removed by retention before this group had finished them.`) : null,
          progress(info, partitions),
          consumers(info),
          inFlight(info, actions),
        ]
      : error
        ? null
        : skeleton(6),
  ];
}

const buttons = (info, actions) =>
  !isOnNats() &&
  h(
    "div",
    { class: "buttons" },
    info.paused ? h("button", { type: "button", class: "primary", key: "resume", onclick: actions.resume }, "Resume") : h("button", { type: "button", key: "pause", onclick: actions.pause }, "Pause"),
    h("button", { type: "button", onclick: actions.seek }, "Seek"),
    h("button", { type: "button", class: "danger", onclick: actions.forget }, "Forget"),
  );

function numbers(info) {
  const stats = overview.now?.topics.find((each) => each.topic === info.topic)?.groups.find((each) => each.group === info.group);
  const facts = [
    ["Lag", count(info.lag)],
    ["In flight", count(info.in_flight)],
    ["Retrying", count(info.retrying ?? 0)],
    ["Not due yet", count(info.delayed)],
    ["Oldest", oldest(info.oldest_unfinished_age_ms)],
    ["Out", rate(stats?.finished_per_s)],
    [isOnNats() ? "Pulls" : "Consumers", count(info.consumers)],
    ...(info.retry ? [["Attempts", info.retry.max_attempts ? count(info.retry.max_attempts) : "no limit"]] : []),
    ["Last used", info.idle_ms ? `${span(info.idle_ms)} ago` : "now"],
  ];
  return h("dl", { class: "strip" }, facts.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value))));
}

function progress(info, partitions) {
  return h(
    "section",
    { "aria-labelledby": "progress" },
    h("h2", { id: "progress" }, "Partitions"),
    table(
      [
        { label: "Partition", number: true, value: (each) => each.partition },
        { label: "How far", class: "bar-cell wide-bar", value: (each) => lagBar(each, partitions.get(each.partition)?.messages ?? 0) },
        { label: "Watermark", number: true, value: (each) => (each.watermark < 0 ? h("span", { class: "soft" }, "start") : count(each.watermark)) },
        { label: "Next offset", number: true, value: (each) => count(partitions.get(each.partition)?.next_offset) },
        { label: "Lag", number: true, value: (each) => count(each.lag) },
        { label: "In flight", number: true, value: (each) => count(each.in_flight) },
        { label: "Retrying", number: true, value: (each) => count(each.retrying ?? 0) },
        { label: "Not due", number: true, value: (each) => count(each.delayed) },
        { label: "Oldest unfinished", class: "nowrap", value: (each) => since(each.oldest_unfinished_ms) },
        ...(info.partitions.some((each) => each.unreadable) ? [{ label: "Stands still", class: "wide", value: (each) => (each.unreadable ? h("span", { class: "bad-number" }, each.unreadable) : "") }] : []),
      ],
      info.partitions,
      { label: "partitions", key: (each) => each.partition },
    ),
    lagLegend(),
  );
}

function consumers(info) {
  if (!info.readers?.length) return null;
  return h(
    "section",
    { "aria-labelledby": "consumers" },
    h("h2", { id: "consumers" }, "Consumers"),
    table(
      [
        { label: "Owner", value: (each) => h("code", {}, each.owner) },
        { label: "Kind", value: (each) => each.kind },
        { label: "Holds", number: true, value: (each) => count(each.held) },
        { label: "Window", number: true, value: (each) => (each.window == null ? "–" : `${count(each.window)}${each.prefetch ? " (prefetch)" : ""}`) },
        { label: "Lease", number: true, value: (each) => span(each.lease_ms) },
        { label: "State", class: "wide", value: (each) => (each.parked_ms == null ? h("span", { class: "tag good" }, "working") : h("span", { class: "tag bad", title: "Its leases ran out and it settled nothing. It gets no new messages until it acks, nacks or extends one, or reconnects." }, `parked ${since(each.parked_ms)}`)) },
      ],
      info.readers,
      { label: "consumers", key: (each, place) => `${each.owner}/${place}` },
    ),
  );
}

const STATES = { leased: "on lease", waiting: "waits for its next attempt", ready: "due again" };

function inFlight(info, actions) {
  const shown = info.messages;
  const canHelp = !isOnNats();
  return h(
    "section",
    { "aria-labelledby": "flight" },
    h("h2", { id: "flight" }, "In flight and retrying ", shown.length < info.in_flight + (info.retrying ?? 0) ? h("span", { class: "soft" }, `the first ${count(shown.length)} of ${count(info.in_flight + (info.retrying ?? 0))}`) : null, canHelp && shown.some((each) => each.state === "leased") ? h("button", { type: "button", class: "quiet", onclick: actions.release }, "Release all of a worker") : null),
    table(
      [
        { label: "Message", value: (each) => h("a", { href: to("topics", info.topic, each.partition, each.offset) }, `${each.partition}/${each.offset}`) },
        { label: "State", value: (each) => h("span", { class: `tag ${each.state === "leased" ? "good" : "warn"}` }, STATES[each.state]) },
        { label: "Worker", value: (each) => (each.owner ? h("code", {}, each.owner) : "–") },
        { label: "Left", number: true, value: (each) => (each.state === "ready" ? "–" : until(each.until_ms, each.state === "leased" ? "run out" : "due")) },
        { label: "Attempts", number: true, value: (each) => count(each.attempts) },
        { label: "Last error", class: "wide", value: (each) => lastOf(each.last_error) },
        ...(canHelp ? [{ label: "", value: (each) => messageActions(info, each, actions.changed) }] : []),
      ],
      shown,
      { label: "in flight", key: (each) => `${each.partition}/${each.offset}`, empty: info.lag ? "Nothing is in flight: nobody has fetched what waits." : "Nothing is in flight, and nothing waits." },
    ),
  );
}
