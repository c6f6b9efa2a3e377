// A run of a slip as a timeline: one bar an attempt, on one axis with its branches, and what was undone underneath.
// Names, words and durations are text that wraps and can be marked; only axis, grid and bars are drawn.

import { h, s } from "../lib/dom.js";
import { exact, span, toMs } from "../lib/format.js";
import { errorText } from "./slip_words.js";
import { timescale, wantsEven } from "./timescale.js";

const MARKS = { done: "✓", retried: "↻", failed: "✗", skipped: "–", working: "▸", waiting: "?", queued: "▹", pending: "○" };
const BRANCH_MARKS = { completed: "✓", "dead-lettered": "✗", "under way": "▸", dropped: "–" };
const OPEN = new Set(["working", "waiting", "queued"]);
/** So that whatever was begun can be seen, however short it was; in percent of the axis. */
const LEAST_WIDTH = 0.5;
const DEPTH_MOST = 6;

/** `scale` is "time", "even", or "" for whichever shows more. */
export function gantt(run, { now = Date.now(), scale = "" } = {}) {
  const lines = [...linesOf(run, 0)];
  if (!lines.length) return h("p", { class: "empty" }, run.state === "completed" ? "It has no steps." : "It was not planned yet.");
  const axis = axisOf(run, lines, now, scale);
  const label = `timeline of run ${run.number + 1}: ${lines.filter((line) => line.row).length} attempts in ${span(axis.to - axis.from)}, ${run.state}; the table below says the same`;
  return h(
    "div",
    { class: "gantt", role: "img", "aria-label": label },
    ruler(axis, run, now),
    h("div", { class: "gantt-lines" }, grid(axis, run, now), lines.map((line) => drawnLine(line, axis, now))),
  );
}

/** Whether it would be evened out by itself. */
export const isEvenByItself = (run, now = Date.now()) => axisOf(run, [...linesOf(run, 0)], now, "").isEven;

// What there is to draw, line by line

/** Of a run and what is nested in it: {row, depth, numbered, again} or {branch, depth} or {note, depth}. */
export function* linesOf(run, depth, path = "") {
  yield* rowsOf(run.rows ?? [], depth, path);
  if (run.undoing?.length) {
    yield { note: "Undone, the last first", depth, key: `${path}undoing` };
    yield* rowsOf(run.undoing, depth, path);
  }
}

function* rowsOf(rows, depth, path) {
  const several = new Set(rows.filter((row) => row.attempt).map((row) => row.step));
  let before = null;
  for (const row of rows) {
    yield { row, depth, numbered: several.has(row.step), again: isLike(row, before), key: `${path}${row.step}#${row.attempt ?? 0}`, path };
    before = row;
    for (const branch of row.branches ?? []) {
      const inside = `${path}${branch.branch || branch.correlationId} / `;
      yield { branch, depth: depth + 1, key: inside, path };
      for (const inner of branch.runs ?? []) yield* linesOf(inner, depth + 2, inside);
    }
  }
}

/** Failed in the same way, as an attempt at the same step: that need not be read twice. */
function isLike(row, before) {
  if (!row.error || !before?.error || row.step !== before.step) return false;
  return row.error.code === before.error.code && row.error.message === before.error.message;
}

// The axis

function axisOf(run, lines, now, scale) {
  const begun = toMs(run.begunAt);
  const moments = [begun, run.endedAt ? toMs(run.endedAt) : now];
  const durations = [];
  for (const { row } of lines.filter((line) => line.row)) {
    const { queued, began, ended } = timesOf(row, now);
    moments.push(...[queued, began, ended].filter((ms) => ms !== null && ms >= begun));
    if (began !== null && ended !== null && row.kind !== "fork") durations.push(ended - began);
  }
  const whole = Math.max(...moments) - begun;
  const isEven = scale ? scale === "even" : wantsEven(durations, whole);
  return timescale(moments, { isEven });
}

export function timesOf(row, now) {
  const at = (time) => (time ? toMs(time) : null);
  return { queued: at(row.queuedAt), began: at(row.beganAt), ended: at(row.endedAt) ?? (OPEN.has(row.state) ? now : null) };
}

const percent = (share) => `${(share * 100).toFixed(2)}%`;

/** A span with its smaller unit, too: two marks of a ruler are never called the same. */
function mark(ms) {
  const [seconds, hours] = [Math.floor(ms / 1000), Math.floor(ms / 3_600_000)];
  if (seconds >= 60 && seconds < 3600 && seconds % 60) return `${span(ms)} ${seconds % 60} s`;
  return hours >= 48 && hours % 24 ? `${span(ms)} ${hours % 24} h` : span(ms);
}

function ruler(axis, run, now) {
  const labels = axis.ticks.map(({ at, ms }, index) => {
    if (index && mark(ms) === mark(axis.ticks[index - 1].ms)) return null; // evened out, two moments may be so near
    const anchor = at < 0.02 ? "start" : at > 0.97 ? "end" : "middle";
    return s("text", { x: percent(at), y: 13, "text-anchor": anchor }, ms ? mark(ms) : "0", s("title", {}, exact(axis.from + ms)));
  });
  const isNow = !run.endedAt;
  return h(
    "div",
    { class: "gantt-ruler" },
    s("svg", { class: "gantt-axis", height: 18 }, isNow ? labels.filter((_, index) => axis.ticks[index].at < 0.86) : labels, isNow && s("text", { class: "gantt-now-word", x: percent(axis.place(now)), y: 13, "text-anchor": "end" }, "now")),
  );
}

function grid(axis, run, now) {
  return s(
    "svg",
    { class: "gantt-grid", "aria-hidden": "true" },
    defs(),
    axis.ticks.map(({ at }) => s("line", { x1: percent(at), x2: percent(at), y1: 0, y2: "100%" })),
    !run.endedAt && s("line", { class: "gantt-now", x1: percent(axis.place(now)), x2: percent(axis.place(now)), y1: 0, y2: "100%" }),
  );
}

/** Stripes for what waits, arrows backwards for what is undone: told apart without colours too. */
function defs() {
  return s(
    "defs",
    {},
    s("pattern", { id: "gantt-stripes", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("rect", { class: "gantt-stripe", width: 2.5, height: 6 })),
    s("pattern", { id: "gantt-back", width: 10, height: 14, patternUnits: "userSpaceOnUse" }, s("path", { class: "gantt-arrow", d: "M6.5 3.5 L3 7 L6.5 10.5" })),
  );
}

// Lines

function drawnLine(line, axis, now) {
  if (line.note) return h("div", { class: "gantt-note", key: line.key }, h("span", { class: `depth-${line.depth}` }, line.note));
  if (line.branch) return branchLine(line);
  const { row } = line;
  const said = saidOf(row, line.again);
  const took = tookOf(row, now);
  return h(
    "div",
    { class: `gantt-line is-${row.state}${row.optional ? " is-optional" : ""}${row.undoes ? " is-undoing" : ""}`, key: line.key, title: hint(row, now) },
    h("div", { class: `gantt-name depth-${Math.min(line.depth, DEPTH_MOST)}` }, h("span", { class: "gantt-mark" }, markOf(row)), h("span", {}, nameOf(line))),
    h("div", { class: "gantt-track" }, track(row, said, bars(row, axis, now), axis.place(timesOf(row, now).began ?? axis.from))),
    h("div", { class: "gantt-took number" }, took),
  );
}

/** What is said stands under its bar, as far as there is room to its right, or where the bar would be. */
function track(row, said, drawn, at) {
  const isPlain = row.kind === "fork" && !row.error;
  return [
    drawn.length || !said ? s("svg", { class: "gantt-bar", height: 14 }, drawn) : null,
    said && !isPlain ? h("p", { class: `gantt-said at-${Math.min(50, Math.floor(at * 20) * 5)}${row.error && row.state !== "skipped" ? " is-error" : ""}` }, said) : null,
  ];
}

const markOf = (row) => (row.undoes && row.state === "done" ? "↶" : MARKS[row.state]);

function branchLine({ branch, depth, key }) {
  const tone = { completed: "done", "dead-lettered": "failed", "under way": "working" }[branch.state] ?? "skipped";
  return h(
    "div",
    { class: `gantt-line gantt-branch is-${tone}`, key },
    h("div", { class: `gantt-name depth-${Math.min(depth, DEPTH_MOST)}` }, h("span", { class: "gantt-mark" }, BRANCH_MARKS[branch.state]), h("span", {}, branch.branch || branch.correlationId)),
    h("div", { class: "gantt-track" }, s("svg", { class: "gantt-bar", height: 14 })),
    h("div", { class: "gantt-took" }),
  );
}

function bars(row, axis, now) {
  const { queued, began, ended } = timesOf(row, now);
  if (ended === null || (row.state === "skipped" && began === null)) return [];
  const drawn = [];
  if (queued !== null && (began ?? ended) > queued) {
    drawn.push(s("line", { class: "gantt-queue", x1: percent(axis.place(queued)), x2: percent(axis.place(began ?? ended)), y1: 7, y2: 7 }));
  }
  if (began === null) return drawn;
  const from = axis.place(began) * 100;
  const width = Math.max(LEAST_WIDTH, axis.place(ended) * 100 - from);
  const place = { x: `${Math.min(from, 100 - LEAST_WIDTH).toFixed(2)}%`, width: `${width.toFixed(2)}%` };
  if (row.kind === "fork") return [...drawn, s("rect", { class: "gantt-fork", ...place, y: 5, height: 4, rx: 2 })];
  drawn.push(s("rect", { class: "gantt-work", ...place, y: 1, height: 12, rx: 2.5 }));
  if (row.kind === "wait") drawn.push(s("rect", { ...place, y: 1, height: 12, rx: 2.5, fill: "url(#gantt-stripes)" }));
  if (row.undoes) drawn.push(s("rect", { ...place, y: 0, height: 14, fill: "url(#gantt-back)" }));
  return drawn;
}

/** Of attempts people count from 1. */
export const nameOf = ({ row, numbered }) => (row.undoes || row.step) + (numbered ? ` #${(row.attempt ?? 0) + 1}` : "");

export function tookOf(row, now) {
  const { queued, began, ended } = timesOf(row, now);
  const since = began ?? queued;
  if (since === null || ended === null || (row.state === "skipped" && began === null)) return "";
  return ended - since < 1 ? "<1 ms" : span(ended - since);
}

export function waitedOf(row, now) {
  const { queued, began, ended } = timesOf(row, now);
  const until = began ?? ended;
  return queued === null || until === null || row.state === "skipped" || until - queued < 1 ? "" : span(until - queued);
}

/** What there is to say of an attempt; `again` if the one before has failed in the same way. */
export function saidOf(row, again = false) {
  const parts = [];
  const decision = row.kind === "wait" && row.detail && !OPEN.has(row.state) ? decisionOf(row.detail) : "";
  if (decision) parts.push(decision);
  else if (row.error) parts.push(again ? `${row.error.code}, as before` : errorText(row.error));
  if (row.detail && row.kind !== "wait") parts.push(row.detail);
  if (row.optional) parts.push("it may fail: the message goes on without it");
  if (row.taken > 1) parts.push(`taken up ${row.taken} times`);
  const said = parts.join("; ");
  if (row.state !== "skipped") return said;
  return said.startsWith("as ") ? `skipped ${said}` : said ? `skipped: ${said}` : "skipped";
}

/** What a person has said is noted as JSON; where nobody has in time, the note is text. */
function decisionOf(notes) {
  let said;
  try {
    said = JSON.parse(notes);
  } catch {
    return notes;
  }
  if (typeof said !== "object" || said === null) return notes;
  const word = { approve: "approved", deny: "denied" }[said.decision] ?? "answered";
  return word + (said.by ? ` by ${said.by}` : "") + (said.note ? `: ${said.note}` : "");
}

function hint(row, now) {
  const { queued, began, ended } = timesOf(row, now);
  const lines = [
    `${row.undoes ? `undo ${row.undoes}` : row.step}: ${row.state}`,
    queued !== null && `queued ${exact(queued)}`,
    began !== null && `began ${exact(began)}`,
    row.endedAt && `ended ${exact(ended)}`,
    row.by && `by ${row.by}`,
  ];
  return lines.filter(Boolean).join("\n");
}

const LEGEND = [
  ["work", "done", "work"],
  ["work", "retried", "failed, tried again"],
  ["work", "failed", "failed for good"],
  ["work", "working", "at work now"],
  ["queue", "done", "queued, or in a pause"],
  ["wait", "waiting", "waits for somebody"],
  ["fork", "done", "waits for branches"],
  ["undo", "done", "undone"],
];

export function legend(lines) {
  const has = {
    retried: lines.some(({ row }) => row?.state === "retried"),
    failed: lines.some(({ row }) => row?.state === "failed"),
    working: lines.some(({ row }) => row?.state === "working"),
    wait: lines.some(({ row }) => row?.kind === "wait"),
    fork: lines.some(({ row }) => row?.kind === "fork"),
    undo: lines.some(({ row }) => row?.undoes),
  };
  return h(
    "ul",
    { class: "gantt-legend", "aria-hidden": "true" },
    LEGEND.filter(([kind, state]) => (has[kind] ?? true) && (has[state] ?? true)).map(([kind, state, words]) =>
      h("li", { class: `is-${state}${kind === "undo" ? " is-undoing" : ""}` }, s("svg", { width: 22, height: 14 }, sample(kind)), words),
    ),
  );
}

function sample(kind) {
  if (kind === "queue") return s("line", { class: "gantt-queue", x1: 0, x2: 22, y1: 7, y2: 7 });
  if (kind === "fork") return s("rect", { class: "gantt-fork", width: 22, y: 5, height: 4, rx: 2 });
  const fill = { wait: "url(#gantt-stripes)", undo: "url(#gantt-back)" }[kind];
  return [s("rect", { class: "gantt-work", width: 22, y: 1, height: 12, rx: 2.5 }), fill && s("rect", { width: 22, height: 14, fill })];
}
