// What a slip does now, in words: the same sentences that `slipstream slip show` says.

import { h } from "../lib/dom.js";
import { ago, exact, span, toMs } from "../lib/format.js";

/** Whoever looks in between sees every message on its way somewhere: that is no reason to worry. */
const TAKEN_UP_WITHIN_MS = 2_000;

export const STATES = {
  completed: ["completed", "good"],
  "dead-lettered": ["dead letter", "bad"],
  dropped: ["dropped", ""],
  "under way": ["under way", "accent"],
};

export function stateTag(state) {
  const [words, tone] = STATES[state] ?? [state, ""];
  return h("span", { class: `tag ${tone}` }, words);
}

export const errorText = (error) => (error ? (error.message ? `${error.code}: ${error.message}` : error.code) : "");

/** One sentence about a standing: `{going, step, since, until, reason, by, branches, error}`. */
export function inWords(standing, now = Date.now()) {
  const step = standing.step ?? "";
  const since = standing.since ? ` for ${span(Math.max(0, now - toMs(standing.since)))}` : "";
  const until = standing.until ? `, until ${clock(standing.until, now)}` : "";
  switch (standing.going) {
    case "completed":
      return standing.since ? `Completed ${ago(toMs(standing.since), now)}` : "Completed";
    case "dropped":
      return `Dropped: ${standing.reason || "its message was over without it"}`;
    case "dead-lettered":
      return `A dead letter${standing.since ? ` since ${clock(standing.since, now)}` : ""}${step ? `, failed at ${step}` : ""}`;
    case "paused":
      return `Step ${step} is paused${standing.reason ? `: ${standing.reason}` : ""}${until}`;
    case "approval":
      return `Waits for approval at ${step}${since}${until}`;
    case "signal":
      return `Waits for a signal at ${step}${since}${until}`;
    case "chunks":
      return `${step} waits for chunks that have not come${since}${until}`;
    case "retry pause":
      return `In the pause before ${step} is tried again${until}`;
    case "at work":
      return `${step} is being worked on${since}${standing.by ? ` by ${standing.by}` : ""}`;
    case "worker lost":
      return `${step} was taken by ${standing.by}, which does not work on it any more: ${standing.reason}. The message is delivered again when its lease ends`;
    case "no worker":
      return `No worker can take ${step}${since}: ${standing.reason}. Start one that names the topic ${standing.topic}, or change the topic of the step in the route table`;
    case "branches":
      return standing.branches?.length
        ? `${step} waits for its branches${since}${until}`
        : `All branches of ${step} have ended, and the router has not joined them${since}: does it run?`;
    case "not taken up":
      return standing.since && now - toMs(standing.since) < TAKEN_UP_WITHIN_MS
        ? `On its way to ${step}`
        : `${step} is not taken yet${standing.topic ? ` from ${standing.topic}` : ""}${since}: ${running(standing)}`;
    case "ending":
      return `All steps are done, and the router has not told the end${since}: does it run?`;
    default:
      return standing.going;
  }
}

function running({ workers = [], reason = "" }) {
  if (!workers.length) return `no worker for it is known to run there${reason ? `; ${reason}` : ""}`;
  return `${workers.length === 1 ? "its worker is" : `its ${workers.length} workers are`} running, and may be busy with others`;
}

/** In a list there is room for few words. */
export function inShort({ going, step, reason }) {
  const at = step ? ` at ${step}` : "";
  const words = {
    completed: "completed",
    dropped: "dropped",
    "dead-lettered": `failed${at}`,
    paused: `${step} is paused`,
    approval: `waits for approval${at}`,
    signal: `waits for a signal${at}`,
    chunks: `waits for chunks${at}`,
    "retry pause": `in a pause before the next try of ${step}`,
    "at work": `${step} is being worked on`,
    "worker lost": `the worker of ${step} is lost`,
    "no worker": `no worker for ${step}`,
    branches: `${step} waits for its branches`,
    "not taken up": `on its way to ${step}`,
    ending: "about to end",
  };
  return [words[going] ?? going ?? "", reason ?? ""];
}

/** What people do there shows: amber where it waits for somebody, red where it needs one. */
export function toneOf({ going, state }) {
  if (going === "dead-lettered" || state === "dead-lettered" || going === "no worker") return "bad";
  if (["approval", "signal", "paused", "worker lost"].includes(going)) return "warn";
  if (going === "completed" || state === "completed") return "good";
  return "accent";
}

/** In UTC, as logs and commands say it, with the date where it is not today's. */
export function clock(time, now = Date.now()) {
  const [day, at] = exact(toMs(time)).slice(0, 19).split(" ");
  return `${day === exact(now).slice(0, 10) ? "" : `${day} `}${at} UTC`;
}
