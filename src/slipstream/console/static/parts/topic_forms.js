// The dialogs about a topic: create, change, produce into it, delete.

import { patch, path, post, remove } from "../lib/api.js";
import { parseCount, parseSize, parseSpan, typedSize, typedSpan } from "../lib/amounts.js";
import { plural } from "../lib/format.js";
import { ask } from "./ask.js";
import { toast } from "./notice.js";

const YES_NO = [
  { value: "true", label: "yes" },
  { value: "false", label: "no" },
];

// name, label, what 0 and examples mean, how it is shown in a field, how it is read from it
const FIELDS = [
  ["retention_ms", "Keep messages for", "7d, 12h; 0 is for ever", typedSpan, parseSpan],
  ["retention_bytes", "and at most, per partition", "10g, 500m; 0 is any size", typedSize, parseSize],
  ["expiry_ms", "Delete the topic when unused and finished for", "30d; 0 is never", typedSpan, parseSpan],
  ["max_attempts", "Attempts before a message is a dead letter", "0 is without end", String, (text) => parseCount(text, "the number of attempts")],
  ["max_in_flight", "In flight at most, per group and partition", "0 is any number", String, (text) => parseCount(text, "the number in flight")],
  ["max_waiting_messages", "Waiting at most, before producers are held back", "0 is any number", String, (text) => parseCount(text, "the number waiting")],
];
const CHOICES = [
  ["hold_unfinished", "Keep what a group has not finished, past the time"],
  ["dead_letters", "Keep what has had its attempts, as a dead letter"],
];

const flat = (config) => ({ ...config, max_attempts: config.retry?.max_attempts });

function fields(config) {
  const now = flat(config);
  return [
    ...FIELDS.map(([name, label, hint, typed]) => ({ name, label, hint, value: now[name] === undefined ? "" : typed(now[name]), placeholder: "as the server" })),
    ...CHOICES.map(([name, label]) => ({ name, label, options: now[name] === undefined ? [{ value: "", label: "as the server" }, ...YES_NO] : YES_NO, value: now[name] === undefined ? "" : String(now[name]) })),
  ];
}

/** What was typed and differs from what holds, as the server takes it. */
function configOf(values, before = {}) {
  const now = flat(before);
  const changed = {};
  for (const [name, , , , parse] of FIELDS) if (values[name].trim() && parse(values[name]) !== now[name]) changed[name] = parse(values[name]);
  for (const [name] of CHOICES) if (values[name] && values[name] !== String(now[name])) changed[name] = values[name] === "true";
  const { max_attempts: attempts, ...config } = changed;
  return attempts === undefined ? config : { ...config, retry: { max_attempts: attempts } };
}

/** Resolves with the name of the topic, or null. */
export async function createTopic() {
  const given = await ask({
    title: "Create a topic",
    text: "What is left open follows the settings of the server, also when they change.",
    action: "Create",
    fields: [
      { name: "name", label: "Name", required: true, pattern: "[A-Za-z0-9._:\\-]{1,200}", title: "1 to 200 characters of A-Z a-z 0-9 . _ : -", autocomplete: "off" },
      { name: "partitions", label: "Partitions", type: "number", value: "1", min: "1", max: "1024", required: true, hint: "there can be more later, never fewer" },
      ...fields({}),
    ],
    run: async (values) => {
      const { created } = await post("/v2/topics", { name: values.name, partitions: Number(values.partitions), config: configOf(values) });
      toast(created ? `created ${values.name}` : `${values.name} exists already, and was left as it is`);
    },
  });
  return given && given.name;
}

export const changeTopic = (info) =>
  ask({
    title: `Settings of ${info.name}`,
    text: "A change holds at once, for old messages as for new ones: a shorter time removes what is past it.",
    action: "Change",
    fields: [
      { name: "partitions", label: "Partitions", type: "number", value: String(info.partitions.length), min: String(info.partitions.length), max: "1024", hint: "with more, most keys move to another" },
      ...fields(info.config),
    ],
    run: async (values) => {
      const more = Number(values.partitions) > info.partitions.length ? { partitions: Number(values.partitions) } : {};
      const config = configOf(values, info.config);
      if (!Object.keys(config).length && !more.partitions) return toast("nothing was changed");
      await patch(path("v2", "topics", info.name), { config, ...more });
      toast(`changed ${info.name}`);
    },
  });

export const followServer = (info) =>
  ask({
    title: `Let ${info.name} follow the server`,
    text: `What was set for this topic (${Object.keys(info.overrides).join(", ")}) is dropped: the settings of the server hold again.`,
    action: "Follow the server",
    run: async () => {
      await patch(path("v2", "topics", info.name), { reset: Object.keys(info.overrides) });
      toast(`${info.name} follows the server`);
    },
  });

export function deleteTopic(info) {
  const messages = info.partitions.reduce((sum, each) => sum + each.messages, 0);
  const groups = info.groups.length ? ` and the progress of ${plural(info.groups.length, "group")}` : "";
  return ask({
    title: `Delete ${info.name}`,
    text: [`${plural(messages, "message")}${groups} will be gone for good. Whoever waits for its messages is told.`, info.name.startsWith("dlq.") ? "They can no longer be sent back." : `Its dead letters stay, in dlq.${info.name}.`],
    action: "Delete the topic",
    typed: info.name,
    run: async () => {
      await remove(path("v2", "topics", info.name));
      toast(`deleted ${info.name}`);
    },
  });
}

/** Resolves with where it was stored, or null. */
export async function produce(topic) {
  let placed = null;
  await ask({
    title: `Produce into ${topic}`,
    text: "Every group of the topic gets it. Messages with the same key keep their order.",
    action: "Produce",
    fields: [
      { name: "key", label: "Key", hint: "may be empty", autocomplete: "off" },
      { name: "value", label: "Value", type: "textarea", spellcheck: "false" },
      { name: "delay", label: "Not before", hint: "from now: 30s, 10m; empty is at once", placeholder: "at once", autocomplete: "off" },
    ],
    run: async ({ key, value, delay }) => {
      const message = { value, ...(key ? { key } : {}), ...(delay.trim() ? { delay_ms: parseSpan(delay) } : {}) };
      const { topic: went, messages } = await post("/v2/produce", { topic, messages: [message] });
      placed = { topic: messages[0].topic ?? went, ...messages[0] };
      toast(`stored at ${placed.topic ?? topic}/${placed.partition}/${placed.offset}`);
    },
  });
  return placed;
}
