// What a person can do with one message that a group has in flight, and with all leases of one worker.

import { get, path, post } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { plural } from "../lib/format.js";
import { ask } from "./ask.js";
import { attemptRows } from "./attempts.js";
import { act, toast } from "./notice.js";

const EXTENSION_MS = 60_000;

/** The buttons of one row; `changed` is called when something was done. */
export function messageActions(info, message, changed) {
  const isLeased = message.state === "leased";
  const button = (label, run, more = {}) => h("button", { type: "button", class: "quiet", "aria-label": `${label} ${message.partition}/${message.offset}`, onclick: async (event) => (await act(event, run)) && changed(), ...more }, label);
  return h(
    "div",
    { class: "buttons row-buttons" },
    isLeased ? [button("Release", () => release(info, message)), button("Extend", () => extend(info, message))] : message.state === "waiting" ? button("Retry now", () => retry(info, message)) : null,
    message.attempts > 1 || !isLeased ? button("Attempts", () => attempts(info, message)) : null,
    button("Reject", () => reject(info, message)),
    button("Discard", () => discard(info, message)),
  );
}

const placeOf = (info, { partition, offset }) => `${info.topic}/${partition}/${offset}`;

async function operate(info, { partition, offset }, operation, done, more = {}) {
  const { failed } = await post(path("v2", "topics", info.topic, "groups", info.group, "messages", operation), { messages: [{ partition, offset }], ...more });
  if (failed.length) throw new Error(failed[0].message);
  toast(done);
}

const retry = (info, message) => operate(info, message, "retry", `${placeOf(info, message)} is retried now`);

const extend = (info, message) => operate(info, message, "extend", `${message.owner} has a minute from now for ${placeOf(info, message)}`, { lease_ms: EXTENSION_MS });

const release = (info, message) =>
  ask({
    title: `Release ${placeOf(info, message)}`,
    text: `The lease of ${message.owner} ends, the attempt does not count, and the message is delivered again at once. If ${message.owner} still works on it, the work is done twice.`,
    action: "Release the lease",
    danger: true,
    run: () => operate(info, message, "release", `${placeOf(info, message)} is released`),
  });

const reject = (info, message) =>
  ask({
    title: `Reject ${placeOf(info, message)}`,
    text: `It becomes a dead letter of group ${info.group}${message.state === "leased" ? `, although ${message.owner} has it on lease` : ""}. A redrive sends it back.`,
    action: "Move to the dead letters",
    danger: true,
    fields: [{ name: "reason", label: "Reason", hint: "shown with the dead letter", autocomplete: "off" }],
    run: ({ reason }) => operate(info, message, "reject", `${placeOf(info, message)} is a dead letter`, { reason: reason.trim() }),
  });

const discard = (info, message) =>
  ask({
    title: `Discard ${placeOf(info, message)}`,
    text: `It counts as finished for group ${info.group} without having been handled, and leaves no dead letter. Other groups are not affected.`,
    action: "Discard the message",
    danger: true,
    run: () => operate(info, message, "discard", `${placeOf(info, message)} is discarded`),
  });

async function attempts(info, { partition, offset }) {
  const found = await get(path("v2", "topics", info.topic, "groups", info.group, "messages", partition, offset));
  const failed = found.history.length ? attemptRows(found.history, found.history.at(-1).number) : "No attempt has failed yet.";
  await ask({ title: `Attempts at ${placeOf(info, { partition, offset })}`, text: [failed], action: "Close" });
}

/** Ends every lease that one worker has in this group. */
export const releaseOwner = (info) => {
  const owners = [...new Set(info.messages.filter((each) => each.state === "leased").map((each) => each.owner))].sort();
  return ask({
    title: "Release all leases of a worker",
    text: `For a worker that is gone: what it holds in ${info.group} is delivered again at once, and the attempts do not count. Messages that it still works on are handled twice.`,
    action: "Release its leases",
    danger: true,
    fields: [{ name: "owner", label: "Worker", options: owners, value: owners[0] }],
    run: async ({ owner }) => {
      const { released } = await post(path("v2", "owners", owner, "release"), { topic: info.topic, group: info.group });
      toast(`${plural(released, "lease")} of ${owner} released`);
    },
  });
};
