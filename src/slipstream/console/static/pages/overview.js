// In ten seconds: is it producers, consumers, a poison message, a slow step or a dead dependency?

import { h, mount } from "../lib/dom.js";
import { count, plural, rate, short, span } from "../lib/format.js";
import { overview, watch } from "../lib/overview.js";
import { lost } from "../parts/lost.js";
import { to } from "../lib/router.js";
import { since } from "../parts/since.js";
import { spark } from "../parts/spark.js";
import { skeleton, table } from "../parts/table.js";

export const title = () => "Overview";

const NUMBERS = [
  ["In", "produced_per_s", rate, "messages stored a second"],
  ["Out", "acked_per_s", rate, "messages finished a second"],
  ["Oldest waiting", "oldest_ms", (ms) => (ms ? span(ms) : "none"), "the message that somebody should have done longest"],
  ["In flight", "in_flight", short, "handed out and not finished"],
  ["Dead letters", "dead_letters", short, "given up, and not sent back"],
];

/** Those that change while a problem stays the same one; not that of `charge-v2`. */
const NUMBER = /(?<![\w-])[\d.,]+/g;

const LEVELS = { error: "needs a person", warning: "look at it", notice: "to know" };

export async function show(root, { signal }) {
  const view = mount(root, () => [h("h1", {}, "Overview"), lost(), ...(overview.now ? drawn(overview) : [unknown(overview.state)])]);
  watch(() => view.update(), signal);
}

function unknown(state) {
  if (state !== "lost") return skeleton(6);
  return h("p", { class: "empty", role: "alert" }, "The server does not answer, or tells nothing of itself. This page comes to life when it does.");
}

function drawn({ now, history, state }) {
  const stale = state === "lost" ? " stale" : "";
  return [
    h("div", { class: `numbers${stale}` }, NUMBERS.map(([label, name, text, meaning]) => number(label, text(now[name]), meaning, history, name, now))),
    h("section", { "aria-labelledby": "wrong" }, h("h2", { id: "wrong" }, "What needs attention"), problems(now.problems, stale)),
    now.parts.length ? h("section", { class: stale.trim() || null, "aria-labelledby": "parts" }, h("h2", { id: "parts" }, "What runs"), parts(now.parts)) : null,
    h("section", { class: stale.trim() || null, "aria-labelledby": "busy" }, h("h2", { id: "busy" }, "Busiest topics"), busiest(now.topics)),
  ];
}

function number(label, value, meaning, history, name, now) {
  const needsLook = name === "dead_letters" && now.dead_letters > 0;
  return h(
    "div",
    { class: `number-card${needsLook ? " attention" : ""}`, title: meaning },
    h("span", { class: "label" }, label),
    h("strong", {}, value),
    spark(history?.[name] ?? [], history?.time_ms ?? [], now.time_ms),
    h("span", { class: "soft small" }, "last 10 min"),
  );
}

function problems(found, stale) {
  if (!found.length && stale) return h("p", { class: "soft" }, "Nothing was wrong before the connection was lost.");
  if (!found.length) return h("p", { class: "quiet-line" }, "All is quiet: nothing is stuck, nothing is lost, every part runs.");
  return h(
    "ul",
    { class: "problems" },
    found.map((each) =>
      h(
        "li",
        { class: `problem ${each.level}`, key: each.link + each.text.replace(NUMBER, "#") },
        h("span", { class: "level" }, LEVELS[each.level]),
        h("span", { class: "words" }, each.text, each.detail ? h("span", { class: "soft" }, " ", each.detail) : null),
        each.link && each.link !== "#/" ? h("a", { class: "button", href: each.link }, each.action || "open") : null,
      ),
    ),
  );
}

function parts(found) {
  const words = { running: "running", starting: "starting", crashed: "crashed, starts again", waiting: "waiting", stopped: "stopped" };
  return table(
    [
      { label: "Part", value: partName },
      { label: "State", value: (part) => h("span", { class: `state ${part.state === "running" ? "good" : part.state === "starting" ? "" : "bad"}` }, h("span", { class: "dot", "aria-hidden": "true" }), words[part.state] ?? part.state) },
      { label: "Since", value: (part) => since(part.since_ms) },
      { label: "Restarts", number: true, value: (part) => count(part.restarts) },
      { label: "Where", value: (part) => (part.url ? h("code", {}, part.name === "console" ? `${location.origin}/` : part.url) : "–") },
      { label: "", class: "wide", value: (part) => part.reason || "" },
    ],
    found,
    { label: "what runs", key: (part) => part.name },
  );
}

/** With what it said last, for who opens it. */
function partName(part) {
  if (!part.log?.length) return part.name;
  return h("details", { class: "part-log" }, h("summary", {}, part.name), h("pre", {}, part.log.join("\n")));
}

function busiest(topics) {
  const busy = topics
    .map((topic) => ({ ...topic, lag: Math.max(0, ...topic.groups.map((group) => group.lag)) }))
    .sort((one, other) => other.produced_per_s - one.produced_per_s || other.lag - one.lag || other.messages - one.messages)
    .slice(0, 8);
  return table(
    [
      { label: "Topic", value: (topic) => h("a", { href: to("topics", topic.topic) }, topic.topic) },
      { label: "In", number: true, value: (topic) => rate(topic.produced_per_s) },
      { label: "Stored", number: true, value: (topic) => short(topic.messages) },
      { label: "Most behind", value: (topic) => behind(topic) },
    ],
    busy,
    { label: "busiest topics", key: (topic) => topic.topic, empty: "There are no topics yet. Produce something, or run slipstream demo." },
  );
}

function behind(topic) {
  const group = topic.groups.toSorted((one, other) => other.lag - one.lag)[0];
  if (!group) return h("span", { class: "soft" }, "no group");
  return group.lag ? [h("a", { href: to("groups", topic.topic, group.group) }, group.group), `, ${plural(group.lag, "message")}`] : h("span", { class: "soft" }, "nobody");
}
