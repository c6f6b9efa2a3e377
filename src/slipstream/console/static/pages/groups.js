// All groups of all topics: who is behind, and who stands still. One of them is group.js.

import { h, mount } from "../lib/dom.js";
import { count, plural, rate } from "../lib/format.js";
import { overview, watch } from "../lib/overview.js";
import { remember, to } from "../lib/router.js";
import { isOnNats } from "../lib/server.js";
import { isStill, lagBar, lagLegend, oldest, stateOf, stateTag, withStill } from "../parts/lag.js";
import { lost } from "../parts/lost.js";
import { errorBox } from "../parts/notice.js";
import { Stretch } from "../parts/stretch.js";
import { table } from "../parts/table.js";
import * as group from "./group.js";

export const title = (parts) => (parts.length ? parts.join("/") : "Groups");

export async function show(root, context) {
  if (context.parts.length >= 2) return group.show(root, context);
  const { query, signal } = context;
  const state = { search: query.search ?? context.parts[0] ?? "", which: query.which ?? "" };
  const change = (values) => {
    Object.assign(state, values);
    remember(state);
    stretch.restart();
    view.update();
  };
  const stretch = new Stretch(() => view.update());
  const view = mount(root, () => draw(state, change, stretch));
  watch(() => view.update(), signal);
}

const WHICH = { "": "all", behind: "behind", still: "where nothing moves", paused: "paused" };

const MATCHES = {
  "": () => true,
  behind: (each) => each.lag > 0,
  still: isStill,
  paused: (each) => each.paused,
};

function draw(state, change, stretch) {
  const all = overview.now && withStill(overview.now.topics.flatMap((topic) => topic.groups.map((each) => ({ ...each, topic: topic.topic, messages: topic.messages }))));
  const wanted = state.search.toLowerCase();
  const shown = all
    ?.filter((each) => `${each.topic}/${each.group}`.toLowerCase().includes(wanted) && (MATCHES[state.which] ?? MATCHES[""])(each))
    .sort((one, other) => rank(one) - rank(other) || other.lag - one.lag || `${one.topic}/${one.group}`.localeCompare(`${other.topic}/${other.group}`));
  const isLost = overview.state === "lost" && !all;
  return [
    h("h1", {}, "Groups"),
    lost(),
    h(
      "form",
      { class: "filters", onsubmit: (event) => event.preventDefault() },
      h("label", {}, "Topic or group", h("input", { type: "search", value: state.search, oninput: (event) => change({ search: event.target.value }), placeholder: "part of its name" })),
      h("label", {}, "Show", h("select", { onchange: (event) => change({ which: event.target.value }) }, Object.entries(WHICH).map(([value, label]) => h("option", { value, selected: value === state.which }, label)))),
      all ? h("span", { class: "soft", role: "status" }, shown.length === all.length ? plural(all.length, "group") : `${count(shown.length)} of ${plural(all.length, "group")}`) : null,
    ),
    isLost ? errorBox({ message: "the server does not answer: is it running, and can this browser reach it?", code: "UNREACHABLE" }) : groups(stretch.of(shown), all),
    stretch.button(shown),
    all?.length ? lagLegend() : null,
  ];
}

const RANKS = { bad: 0, warn: 1 };
const rank = (each) => RANKS[stateOf(each)[0]] ?? 2;

const groups = (shown, all) =>
  table(
    [
      { label: "Group", class: "name", value: (each) => h("a", { href: to("groups", each.topic, each.group) }, each.group) },
      { label: "Topic", class: "name", value: (each) => h("a", { class: "plain-link", href: to("topics", each.topic) }, each.topic) },
      { label: "How far", class: "bar-cell", value: (each) => lagBar(each, each.messages) },
      { label: "Lag", number: true, value: (each) => count(each.lag) },
      { label: "In flight", number: true, value: (each) => count(each.in_flight) },
      { label: "Oldest", number: true, value: (each) => oldest(each.oldest_unfinished_age_ms) },
      { label: "Out", number: true, value: (each) => rate(each.finished_per_s) },
      // NATS knows how many pulls wait, of which a consumer may have several.
      { label: isOnNats() ? "Pulls" : "Consumers", number: true, value: (each) => count(each.consumers) },
      { label: "State", value: stateTag },
    ],
    shown,
    {
      label: "groups",
      key: (each) => `${each.topic}/${each.group}`,
      empty: all?.length ? "No group fits these choices." : "There are no groups yet: the first fetch or stream of a group makes it.",
      onRow: (each) => (location.hash = to("groups", each.topic, each.group)),
    },
  );
