// One message with all that travels with it: place, time, envelope, attributes, routing, body.

import { path, query } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { exact } from "../lib/format.js";
import { preview } from "../lib/payload.js";
import { to } from "../lib/router.js";
import { body } from "./body.js";
import { copyButton, curl } from "./copy.js";
import { since } from "./since.js";

/** A list of facts; those without a value are left out. */
export function facts(rows) {
  const given = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts-list" }, given.map(([label, value]) => [h("dt", {}, label), h("dd", {}, value)]));
}

const ENVELOPE = {
  tenant_id: "tenant",
  run_id: "run",
  step_id: "step",
  parent_step_id: "parent step",
  idempotency_key: "idempotency key",
  target_topic: "target topic",
  partition_override: "partition override",
  deadline: "deadline",
};

export const keyOf = (message) =>
  message.key ? h("code", {}, preview(message.key, message.key_encoding, 200)) : h("span", { class: "soft" }, "none");

/** A time with how long ago it is. */
export const when = (ms) => (ms === null || ms === undefined ? null : [exact(ms), h("span", { class: "soft" }, " (", since(ms), ")")]);

const messagePath = (topic, partition, offset) => path("v2", "topics", topic, "messages") + query({ partition, from: offset, limit: 1 });

export function message(topic, shown) {
  const { partition, offset } = shown;
  return [
    facts([
      ["Place", h("code", {}, `${topic}/${partition}/${offset}`)],
      ["Key", keyOf(shown)],
      ["Stored", when(shown.timestamp_ms)],
      ["Due", when(shown.deliver_at_ms)],
      ["Only for group", shown.only_group ? h("a", { href: to("groups", topic, shown.only_group) }, shown.only_group) : null],
      ["Redriven from", shown.redriven_from ? deadLetterLink(shown.redriven_from) : null],
    ]),
    travels(shown),
    body(topic, shown),
    h("div", { class: "buttons" }, copyButton(() => curl(messagePath(topic, partition, offset)), "Copy as curl"), copyButton(() => location.origin + location.pathname + to("topics", topic, partition, offset), "Copy link")),
  ];
}

/** Envelope, attributes and routing, each if it is there. */
export function travels({ envelope, attributes, routing }) {
  const { labels, retry_policy: retry, dlq, ...rest } = envelope ?? {};
  const known = Object.entries(rest).map(([name, value]) => [ENVELOPE[name] ?? name, h("code", {}, String(value))]);
  if (retry) known.push(["retries", Object.entries(retry).map(([name, value]) => `${name} ${value}`).join(", ")]);
  const origin = dlq ? [["died in", h("a", { href: to("topics", dlq.original_topic, dlq.original_partition, dlq.original_offset) }, `${dlq.original_topic}/${dlq.original_partition}/${dlq.original_offset}`)], ["reason", dlq.reason], ["last error", dlq.last_error]] : [];
  return [
    section("Envelope", [...known, ...origin]),
    section("Labels", pairs(labels)),
    section("Attributes", pairs(attributes)),
    section("Routing", [...(routing?.label ? [["label", routing.label]] : []), ...pairs(routing?.meta)]),
  ];
}

const pairs = (values) => Object.entries(values ?? {}).map(([name, value]) => [name, h("code", {}, value)]);

const section = (title, rows) => (rows.length ? h("section", {}, h("h3", {}, title), facts(rows)) : null);

function deadLetterLink(place) {
  const [topic, partition, offset] = place.split("/");
  return h("a", { href: to("dead-letters", topic, partition, offset) }, place);
}
