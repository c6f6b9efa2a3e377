// How far a group is: what is finished, in flight and waiting, of all there is; and in what state that leaves it.

import { h } from "../lib/dom.js";
import { count, plural, span } from "../lib/format.js";
import { overview } from "../lib/overview.js";
import { bar } from "./bar.js";

const STILL_MS = 60_000;

export function lagBar({ lag, in_flight: flight, retrying = 0, delayed = 0 }, messages) {
  const whole = Math.max(messages, lag, 1);
  const waiting = Math.max(0, lag - flight - retrying - delayed);
  const segment = (number, state, words) => ({ share: number / whole, state, title: `${count(number)} ${words}` });
  return bar(
    [segment(whole - lag, "done", "finished"), segment(flight, "flight", "in flight"), segment(retrying, "delayed", "retrying"), segment(delayed, "delayed", "not due yet"), segment(waiting, "waiting", "waiting")],
    messages || lag ? `${plural(lag, "message")} behind of ${count(Math.max(messages, lag))}` : "no messages",
  );
}

/** The legend of the bar, once a page. */
export const lagLegend = () =>
  h("p", { class: "legend soft small", "aria-hidden": "true" }, [["done", "finished"], ["flight", "in flight"], ["delayed", "not due yet"], ["waiting", "waiting"]].map(([state, words]) => h("span", {}, h("span", { class: `key key-${state}` }), words)));

/** Groups, each with its `topic`, with `still_ms`: for how long they have had work, and finished none of it. */
export function withStill(groups) {
  const still = new Map(overview.now?.still.map((each) => [`${each.topic}/${each.group}`, each.still_ms]));
  return groups.map((each) => ({ ...each, still_ms: still.get(`${each.topic}/${each.group}`) ?? 0 }));
}

export const isStill = (group) => ["bad", "warn"].includes(stateOf(group)[0]) && !group.paused;

/** [level, words] of a group: what a person on call wants to know first. */
export function stateOf({ paused, lag, in_flight: flight, delayed = 0, consumers, parked = 0, oldest_unfinished_age_ms: oldest, still_ms: still = 0 }) {
  if (paused) return ["warn", "paused"];
  if (!lag) return consumers ? ["good", "up to date"] : ["", "up to date"];
  if (lag === delayed) return ["", "waits until due"];
  if (parked && parked === consumers) return ["bad", "all consumers parked"];
  if (!consumers && !flight) return oldest > STILL_MS ? ["bad", `nobody works, ${span(oldest)}`] : ["warn", "nobody works"];
  if (parked) return ["warn", `${parked} of ${plural(consumers, "consumer")} parked`];
  if (still) return ["bad", `stands still, ${span(still)}`];
  return ["good", "working"];
}

export function stateTag(group) {
  const [level, words] = stateOf(group);
  return h("span", { class: `tag ${level}` }, words);
}

export const oldest = (ms) => (ms ? span(ms) : "–");
