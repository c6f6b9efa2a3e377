// The dialogs about a group: pause, seek, forget. Each says in a plain sentence what will happen.

import { get, path, post, remove } from "../lib/api.js";
import { parseCount, parseTime } from "../lib/amounts.js";
import { count, plural } from "../lib/format.js";
import { ask } from "./ask.js";
import { toast } from "./notice.js";

const place = (info, ...more) => path("v2", "topics", info.topic, "groups", info.group, ...more);

export const pauseGroup = (info) =>
  ask({
    title: `Pause ${info.group}`,
    text: `${info.group} is delivered nothing of ${info.topic} until it is resumed, also after a restart. What is on lease can be finished${info.in_flight ? ` (${plural(info.in_flight, "message")} now)` : ""}. It goes on holding back producers like any other group.`,
    action: "Pause",
    run: async () => {
      await post(place(info, "pause"));
      toast(`${info.group} is paused`);
    },
  });

export async function resumeGroup(info) {
  await post(place(info, "resume"));
  return `${info.group} goes on`;
}

export const forgetGroup = (info) =>
  ask({
    title: `Forget ${info.group}`,
    text: [
      `Its progress in ${info.topic} is gone${info.consumers ? `, and its ${plural(info.consumers, "consumer")} will be ended` : ""}. The messages stay.`,
      "If it is used again it begins as a new group, with the oldest message: all would be delivered to it again.",
    ],
    action: "Forget the group",
    typed: info.group,
    run: async () => {
      await remove(place(info));
      toast(`forgot ${info.group}`);
    },
  });

const WHERE = [
  { value: "earliest", label: "the oldest message: everything again" },
  { value: "latest", label: "the end: only what is new" },
  { value: "offset", label: "an offset" },
  { value: "time", label: "a time" },
];

export function seekGroup(info) {
  const partitions = info.partitions.map(({ partition }) => ({ value: String(partition), label: `only ${partition}` }));
  return ask({
    title: `Seek ${info.group}`,
    text: "What the group holds is let go: leases, retries that wait, and how often each was tried. Its consumers go on from the new place at once; pause the group first to look before they do.",
    action: "Seek",
    danger: true,
    typed: info.group,
    fields: [
      { name: "where", label: "Go on with", options: WHERE, value: "earliest" },
      { name: "offset", label: "Offset", inputmode: "numeric", placeholder: "0", when: ({ where }) => where === "offset" },
      { name: "time", label: "Time", hint: "UTC, or how long ago", placeholder: "1h, or 2026-11-18 02:24", when: ({ where }) => where === "time" },
      ...(partitions.length > 1 ? [{ name: "partition", label: "Partitions", options: [{ value: "", label: `all ${partitions.length}` }, ...partitions], value: "" }] : []),
    ],
    note: (values) => consequence(info.topic, info.group, values),
    run: async (values) => {
      const after = await post(place(info, "seek"), seekOf(values));
      toast(`${info.group} has ${plural(after.lag, "message")} in front of it`);
    },
  });
}

function seekOf({ where, offset, time, partition }) {
  const target = where === "offset" ? { offset: parseCount(offset, "an offset") } : where === "time" ? { time: parseTime(time) } : { to: where };
  return partition ? { ...target, partition: Number(partition) } : target;
}

/** How many messages will come again or be passed over, from what is there now. */
async function consequence(topic, group, values) {
  if ((values.where === "offset" && !values.offset.trim()) || (values.where === "time" && !values.time.trim())) return `Say which ${values.where}.`;
  const seek = seekOf(values);
  const [now, log] = await Promise.all([get(path("v2", "topics", topic, "groups", group)), post("/v2/offsets", { topics: [topic], ...(seek.time ? { since: seek.time } : {}) })]);
  const isMeant = ({ partition }) => seek.partition === undefined || partition === seek.partition;
  const before = now.partitions.filter(isMeant).reduce((total, { lag }) => total + lag, 0);
  const { total, isExact } = inFront(log.topics[0].partitions, isMeant, seek);
  const roughly = isExact ? "" : "about ";
  const sentence = `${group} has ${plural(before, "message")} in front of it now, and will have ${roughly}${count(total)}`;
  if (total > before) return `${sentence}: ${roughly}${plural(total - before, "message")} will be delivered again.`;
  if (total < before) return `${sentence}: ${roughly}${plural(before - total, "message")} will be passed over, and never be delivered to it.`;
  return `${sentence}: as many as before.`;
}

/**
 * Messages at or behind the place. Offsets count per topic, without gaps but those of retention: over all partitions
 * they can be subtracted; in one of several it is a guess by how full it is.
 */
function inFront(partitions, isMeant, seek) {
  const meant = partitions.filter(isMeant);
  const kept = meant.reduce((total, { messages }) => total + messages, 0);
  if (seek.to) return { total: seek.to === "earliest" ? kept : 0, isExact: true };
  const from = (each) => Math.min(each.end_offset, Math.max(each.first_offset, seek.offset ?? each.since_offset));
  if (meant.every((each) => from(each) === each.first_offset)) return { total: kept, isExact: true };
  if (meant.every((each) => from(each) === each.end_offset)) return { total: 0, isExact: true };
  if (meant.length === partitions.length) {
    const end = Math.max(...meant.map((each) => each.end_offset));
    const start = Math.min(...meant.filter((each) => from(each) < each.end_offset).map((each) => seek.offset ?? from(each)));
    const isWhole = start >= Math.max(...meant.map((each) => each.first_offset));
    return { total: Math.min(kept, end - start), isExact: isWhole };
  }
  const guess = meant.reduce((total, each) => total + (each.messages * (each.end_offset - from(each))) / Math.max(1, each.end_offset - each.first_offset), 0);
  return { total: Math.round(guess), isExact: meant.every((each) => each.messages === each.end_offset - each.first_offset) };
}
