// How far a job is: stored, failed, and the rest.

import { h } from "../lib/dom.js";
import { bytes, count, exact, plural, span } from "../lib/format.js";
import { bar } from "./bar.js";

const STATES = {
  queued: ["queued", ""],
  in_progress: ["in progress", "accent"],
  partial: ["partial", "warn"],
  completed: ["completed", "good"],
  failed: ["failed", "bad"],
  paused: ["paused", "warn"],
  cancelled: ["cancelled", ""],
};

export const ENDED = new Set(["partial", "completed", "failed", "cancelled"]);

export function jobTag(state) {
  const [words, tone] = STATES[state] ?? [state, ""];
  return h("span", { class: `tag ${tone}` }, words);
}

export function progress(job) {
  const total = job.resources_total || 1;
  return bar(
    [
      { share: job.resources_completed / total, state: "done", title: `${count(job.resources_completed)} stored` },
      { share: job.resources_failed / total, state: "failed", title: `${count(job.resources_failed)} failed` },
    ],
    progressWords(job),
  );
}

/** The bytes of a job, while something is under way its speed and the time that is left, and the host it waits for. */
export function transferWords(job) {
  return [
    job.bytes_stored ? `${bytes(job.bytes_stored)} stored` : "",
    job.bytes_under_way ? `${bytes(job.bytes_under_way)} under way` : "",
    job.bytes_per_s ? `${bytes(job.bytes_per_s)}/s` : "",
    Number.isInteger(job.remaining_s) ? `about ${span(job.remaining_s * 1000)} left` : "",
    job.waiting_tasks ? waitingWords(job) : "",
  ]
    .filter(Boolean)
    .join(", ");
}

function waitingWords(job) {
  const verb = job.waiting_tasks === 1 ? "waits" : "wait";
  return `${plural(job.waiting_tasks, "task")} ${verb} for ${job.waiting_host}, which asked to wait until ${exact(job.waiting_until_ms)}`;
}

export function progressWords(job) {
  const rest = job.resources_total - job.resources_completed - job.resources_failed;
  return [
    `${count(job.resources_completed)} of ${count(job.resources_total)} stored`,
    job.resources_failed ? `${count(job.resources_failed)} failed` : "",
    rest && job.resources_completed + job.resources_failed ? `${count(rest)} to go` : "",
  ]
    .filter(Boolean)
    .join(", ");
}
