// In ten seconds: is it producers, consumers, a poison message, a slow step or a dead dependency?

import { path, post, query, remove } from "../lib/api.js";
import { h, mount } from "../lib/dom.js";
import { count, plural, rate, short, span } from "../lib/format.js";
import { overview, watch } from "../lib/overview.js";
import { ask } from "../parts/ask.js";
import { act } from "../parts/notice.js";
import { lost } from "../parts/lost.js";
import { remember, to } from "../lib/router.js";
import { isOnNats } from "../lib/server.js";
import { since } from "../parts/since.js";
import { spark } from "../parts/spark.js";
import { skeleton, table } from "../parts/table.js";

export const title = () => "Overview";

const NUMBERS = [
  ["In", "produced_per_s", rate, "messages stored a second"],
  ["Out", "acked_per_s", rate, "messages finished a second"],
  ["Oldest waiting", "oldest_ms", (ms) => (ms ? span(ms) : "none"), "the message that somebody should have done longest"],
  ["In flight", "in_flight", short, "handed out and not finished"],
  ["Dead letters", "dead_letters", short, "failed for good, and not sent back or discarded"],
];

const LEVELS = { error: "Attention needed", warning: "Warning", notice: "Info" };

/** What the dead letters are, each with its page. */
const DEAD_LETTERS = [
  ["messages", "message", () => to("dead-letters")],
  ["slips", "slip", () => `${to("slips")}?state=dead-lettered`],
  ["downloads", "download", () => to("jobs", "dead-letters")],
];

/** `?part=jobs` opens the log of a part. */
export async function show(root, { query: { part }, signal }) {
  const view = mount(root, () => [h("h1", {}, "Overview"), lost(), ...(overview.now ? drawn(overview) : [unknown(overview.state)])]);
  let wanted = part;
  watch(() => {
    view.update();
    if (wanted && overview.now) {
      showLog(wanted);
      wanted = "";
      remember({}); // so that the button works a second time
    }
  }, signal);
}

function showLog(part) {
  const log = document.getElementById(`log-${part}`);
  if (!log) return;
  log.open = true;
  log.scrollIntoView({ block: "nearest" });
}

function unknown(state) {
  if (state !== "lost") return skeleton(6);
  return h("p", { class: "empty", role: "alert" }, "The server does not answer, or tells nothing of itself. This page comes to life when it does.");
}

function drawn({ now, history, state }) {
  const stale = state === "lost" ? " stale" : "";
  return [
    h("div", { class: `numbers${stale}` }, NUMBERS.map(([label, name, text, meaning]) => number(label, text(now[name]), meaning, history, name, now))),
    h("section", { "aria-labelledby": "wrong" }, h("h2", { id: "wrong" }, "Problems"), problems(now.problems, stale)),
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
    name === "dead_letters" && now.dead_letters ? deadLetters(now.dead_letter_counts) : h("span", { class: "soft small" }, "last 10 min"),
  );
}

function deadLetters(counts) {
  const links = DEAD_LETTERS.filter(([name]) => counts[name]).map(([name, what, href]) => h("a", { href: href() }, plural(counts[name], what)));
  return h("span", { class: "small dead-letter-links" }, links.flatMap((link, index) => (index ? [", ", link] : [link])));
}

function problems(found, stale) {
  if (!found.length && stale) return h("p", { class: "soft" }, "Nothing was wrong before the connection was lost.");
  if (!found.length) return h("p", { class: "quiet-line" }, "All is quiet: nothing is stuck, nothing is lost, every part runs.");
  const open = found.filter((each) => !each.acknowledged);
  const acknowledged = found.filter((each) => each.acknowledged);
  return [
    open.length ? h("ul", { class: "problems" }, open.map(problem)) : h("p", { class: "quiet-line" }, "Every problem is acknowledged."),
    acknowledged.length
      ? h("details", { class: "acknowledged", key: "acknowledged" }, h("summary", {}, `${plural(acknowledged.length, "acknowledged problem")}`), h("ul", { class: "problems" }, acknowledged.map(problem)))
      : null,
  ];
}

function problem(each) {
  return h(
    "li",
    { class: `problem ${each.acknowledged ? "notice" : each.level}`, key: each.key },
    h("span", { class: "level" }, each.acknowledged ? "Acknowledged" : LEVELS[each.level]),
    h(
      "span",
      { class: "words" },
      each.text,
      each.detail ? h("span", { class: "soft" }, " ", each.detail) : null,
      h("span", { class: "soft small seen" }, each.acknowledged ? ["acknowledged by ", each.acknowledged.by, " ", since(each.acknowledged.at_ms)] : ["first seen ", since(each.since_ms)]),
    ),
    h(
      "span",
      { class: "problem-actions" },
      each.message && !isOnNats() ? [h("button", { type: "button", onclick: (event) => retryNow(event, each.message) }, "Retry now"), h("button", { type: "button", onclick: () => reject(each.message) }, "Reject…")] : null,
      each.link && each.link !== "#/" ? h("a", { class: "button", href: each.link }, each.action) : null,
      each.key ? h("button", { type: "button", class: "quiet", onclick: (event) => (each.acknowledged ? withdraw(event, each) : acknowledge(each)) }, each.acknowledged ? "Show again" : "Acknowledge") : null,
    ),
  );
}

const NAME = "slipstream.name";

/** The name of the person is remembered in this browser: it is asked for each time, and mostly the same. */
async function acknowledge(each) {
  await ask({
    title: "Acknowledge this problem",
    text: [each.text, "It moves to the acknowledged problems, for everybody, and comes back when it gets worse, or happens again after it is resolved."],
    action: "Acknowledge",
    fields: [{ name: "by", label: "Your name", value: localStorage.getItem(NAME) ?? "", required: true }],
    run: async ({ by }) => {
      await post("/v2/acknowledgements", { key: each.key, by });
      localStorage.setItem(NAME, by);
    },
  });
}

const operation = ({ topic, group }, name) => path("v2", "topics", topic, "groups", group, "messages", name);

const places = ({ partition, offset }) => [{ partition, offset }];

/** Throws what the broker says about the one message of a request. */
function checkDone({ failed }) {
  if (failed.length) throw Object.assign(new Error(failed[0].message), { code: failed[0].error });
}

const retryNow = (event, message) => act(event, async () => checkDone(await post(operation(message, "retry"), { messages: places(message) })), "The message is due now.");

async function reject(message) {
  await ask({
    title: `Reject ${message.topic}/${message.partition}/${message.offset}`,
    text: [`Group ${message.group} gets it no more; it becomes a dead letter, which can be redriven when the cause is fixed.`],
    action: "Reject",
    fields: [{ name: "reason", label: "Reason", required: true }],
    run: async ({ reason }) => checkDone(await post(operation(message, "reject"), { messages: places(message), reason })),
  });
}

const withdraw = (event, each) => act(event, () => remove("/v2/acknowledgements" + query({ key: each.key })));

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
  return h("details", { class: "part-log", id: `log-${part.name}` }, h("summary", {}, part.name), h("pre", {}, part.log.join("\n")));
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
