// One message: where it was, is, and still has to go, and what a person can do about it.

import { get, path } from "../lib/api.js";
import { h, mount } from "../lib/dom.js";
import { exact, span, toMs } from "../lib/format.js";
import { every } from "../lib/live.js";
import { remember, to } from "../lib/router.js";
import { copyButton, curl } from "../parts/copy.js";
import { gantt, isEvenByItself, legend, linesOf, nameOf, saidOf, tookOf, waitedOf } from "../parts/gantt.js";
import { json } from "../parts/json.js";
import { errorBox } from "../parts/notice.js";
import { since } from "../parts/since.js";
import { cancel, decisionButtons, rerun, waitingSteps } from "../parts/slip_actions.js";
import { clock, errorText, inShort, inWords, stateTag, toneOf } from "../parts/slip_words.js";
import { pausedSteps } from "../parts/steps.js";
import { partLogs } from "../parts/part_log.js";
import { skeleton, table } from "../parts/table.js";

const LOOK_MS = 1_000;
/** One that has ended changes only if somebody runs it again, and one that is not known may yet come. */
const LOOK_ENDED_MS = 5_000;
/** What somebody asks for is done by the router when it looks: that is waited for. */
const EAGER_MS = 10_000;

export async function show(root, { parts, query, signal }) {
  const [id] = parts;
  const address = path("v2", "slips", id);
  let slip = null;
  let error = null;
  let scale = query.scale ?? "";
  let looked = 0;
  let eagerUntil = 0;

  const steps = pausedSteps(signal, () => view.update());
  const logs = partLogs(id, signal, () => view.update());
  const look = async () => {
    looked = Date.now();
    try {
      slip = await get(address, { signal });
      error = null;
      logs.lookIfNewer(slip.movedAt);
    } catch (failure) {
      if (failure.name === "AbortError") return;
      error = failure;
    }
    view.update();
  };
  const isCalm = () => (error || slip?.endedAt) && Date.now() > eagerUntil && Date.now() - looked < LOOK_ENDED_MS;
  every(LOOK_MS, () => (isCalm() ? view.update() : look()), signal);
  const done = () => {
    eagerUntil = Date.now() + EAGER_MS;
    return look();
  };

  const view = mount(root, () => [
    h("div", { class: "page-head" }, h("p", { class: "crumbs" }, h("a", { href: to("slips") }, "Slips"), " /"), h("h1", { class: "mono" }, id), slip && stateTag(slip.state)),
    error && errorBox(error, look),
    slip ? drawn(slip, { scale, steps, logs, look: done, setScale, address }) : !error && skeleton(8),
  ]);

  function setScale(wanted) {
    scale = wanted;
    remember({ scale });
    view.update();
  }
}

function drawn(slip, page) {
  const now = Date.now();
  return [
    h("p", { class: "facts-line soft" }, facts(slip, now)),
    standing(slip, page, now),
    h("section", { "aria-labelledby": "timeline" }, timelineHead(slip, page, now), runs(slip, page, now)),
    h("section", { "aria-labelledby": "steps" }, h("h2", { id: "steps" }, "Step by step"), slip.runs.map((run) => rows(slip, run, page, now))),
    page.logs.section(),
    messages(slip, page.address),
  ];
}

function facts(slip, now) {
  const begun = toMs(slip.begunAt);
  const several = slip.runs.length > 1 ? ` in ${slip.runs.length} runs` : "";
  return [
    h("span", {}, slip.type),
    h("span", {}, "begun ", since(slip.begunAt)),
    slip.endedAt ? h("span", {}, `took ${span(toMs(slip.endedAt) - begun)}${several}`) : h("span", {}, `under way for ${span(now - begun)}${several}`),
    !slip.endedAt && slip.timeoutAt && h("span", {}, `given up at ${clock(slip.timeoutAt, now)}`),
    slip.parent && h("span", {}, "branch of ", h("a", { href: to("slips", slip.parent) }, slip.parent)),
    slip.traceId && h("span", {}, "trace ", h("code", {}, slip.traceId), copyButton(slip.traceId, "Copy")),
  ];
}

// What it does now

function standing(slip, { steps, look }, now) {
  const { standing: does } = slip;
  const waiting = waitingSteps(slip);
  const own = waiting.find((each) => each.id === slip.correlationId && each.step === does.step);
  const at = slip.runs.at(-1).rows?.find((row) => row.step === does.step);
  const canPause = slip.state === "under way" && does.step && at?.kind !== "wait" && at?.kind !== "fork";
  return h(
    "section",
    { class: `card standing ${toneOf(does)}`, "aria-label": "what it does now" },
    h("p", { class: "unseen", role: "status" }, inShort(does)[0]), // the words below count: they would be read aloud every second
    h("p", { class: "standing-words" }, inWords(does, now)),
    does.error && h("p", { class: "standing-error" }, errorText(does.error)),
    (does.branches ?? []).map(([name, inner]) => h("p", { class: "soft" }, h("a", { href: to("slips", name) }, name), ": ", inWords(inner, now))),
    waiting.filter((each) => each !== own).map((each) => h("div", { class: "buttons", key: `${each.id} ${each.step}` }, h("span", {}, each.branch ? `${each.branch}: ${each.step}` : each.step), decisionButtons(each, look))),
    h(
      "div",
      { class: "buttons", key: "buttons" },
      own && decisionButtons(own, look),
      h("button", { type: "button", onclick: () => rerun(slip, "", look) }, "Run again…"),
      slip.state === "under way" && h("button", { type: "button", onclick: () => cancel(slip, look) }, "Cancel…"),
      steps.isPaused(does.step)
        ? h("button", { type: "button", onclick: (event) => steps.resume(event, does.step).then(look) }, `Resume ${does.step}`)
        : canPause && h("button", { type: "button", onclick: () => steps.pause(does.step).then(look) }, `Pause ${does.step}…`),
    ),
  );
}

// The timeline

function timelineHead(slip, { scale, setScale }, now) {
  const isEven = scale ? scale === "even" : slip.runs.some((run) => isEvenByItself(run, now));
  return h(
    "div",
    { class: "section-head" },
    h("h2", { id: "timeline" }, "Timeline"),
    h(
      "label",
      { class: "check small soft", title: "pieces of time get widths that differ less than they do: short steps can be seen beside long waits" },
      h("input", { type: "checkbox", name: "even", checked: isEven, onchange: (event) => setScale(event.target.checked ? "even" : "time") }),
      "even out long and short",
    ),
  );
}

function runs(slip, { scale }, now) {
  const lines = slip.runs.flatMap((run) => [...linesOf(run, 0)]);
  return h(
    "div",
    { class: "card gantt-card" },
    slip.runs.map((run) => [(slip.runs.length > 1 || run.detail) && runHead(run), gantt(run, { now, scale })]),
    legend(lines),
  );
}

function runHead(run) {
  const from = run.number && run.rows?.length ? `, from ${run.rows[0].step}` : "";
  return h(
    "h3",
    { class: "run-head" },
    run.detail || `Run ${run.number + 1}${from}`,
    " ",
    stateTag(run.state),
    run.endedAt && h("span", { class: "soft" }, ` took ${span(toMs(run.endedAt) - toMs(run.begunAt))}`),
  );
}

const TONES = { done: "good", failed: "bad", retried: "warn", waiting: "warn", working: "accent" };
const WORDS = { done: "done", retried: "failed, tried again", failed: "failed", skipped: "skipped", working: "at work", waiting: "waits", queued: "next", pending: "still to come" };

function rows(slip, run, { look }, now) {
  const lines = [...linesOf(run, 0)].filter((line) => line.row);
  const isLast = run === slip.runs.at(-1);
  const head = slip.runs.length > 1 ? runHead(run) : null;
  const shown = table(
    [
      { label: "Step", value: (line) => h("span", {}, line.path && h("span", { class: "soft" }, line.path), line.row.undoes ? "undo " : "", nameOf(line)) },
      { label: "State", value: ({ row }) => h("span", { class: `tag ${row.optional ? "warn" : (TONES[row.state] ?? "")}` }, WORDS[row.state]) },
      { label: "Began", class: "when", value: ({ row }) => (row.beganAt ? since(row.beganAt) : "") },
      { label: "Waited", number: true, value: ({ row }) => waitedOf(row, now) },
      { label: "Took", number: true, value: ({ row }) => (row.beganAt ? tookOf(row, now) : "") },
      { label: "Said", class: "wide", value: ({ row, again }) => saidOf(row, again) },
      { label: "By", value: ({ row }) => (row.by ? h("code", { class: "soft" }, row.by) : "") },
      {
        label: "",
        value: (line) =>
          isLast && !line.depth && !line.row.undoes && line.row.state !== "pending"
            ? h("button", { type: "button", class: "link small when", "aria-label": `Run again from ${line.row.step}`, onclick: () => rerun(slip, line.row.step, look) }, "again…")
            : "",
      },
    ],
    lines,
    { label: `steps of run ${run.number + 1}`, key: (line) => line.key, empty: run.state === "completed" ? "It has no steps." : "It was not planned yet." },
  );
  return [head, shown];
}

// What it carries

function messages(slip, address) {
  const topics = topicsOf(slip);
  return [
    h(
      "section",
      { "aria-labelledby": "message" },
      h("div", { class: "section-head" }, h("h2", { id: "message" }, "Message"), copyButton(() => curl(address), "Copy as curl")),
      h(
        "div",
        { class: "two" },
        h("div", {}, h("h3", {}, "Payload"), slip.payload === null && !slip.envelope ? h("p", { class: "empty" }, "It is not kept.") : json(slip.payload, "payload")),
        slip.envelope && h("div", {}, h("h3", {}, "Envelope"), json(slip.envelope, "envelope")),
      ),
    ),
    h(
      "section",
      { "aria-labelledby": "related" },
      h("h2", { id: "related" }, "Where it went"),
      h(
        "dl",
        { class: "facts-list" },
        slip.jobs?.length ? [h("dt", {}, "Jobs it submitted"), h("dd", {}, slip.jobs.map((job) => [h("a", { class: "mono", href: to("jobs", job) }, job), " "]))] : null,
        h("dt", {}, "Its messages"),
        h("dd", { class: "chips" }, topics.map((topic) => h("a", { class: "tag mono", href: to("topics", topic, { time: exact(toMs(slip.begunAt)).slice(0, 19) }) }, topic))),
      ),
    ),
  ];
}

/** Those of the steps it has come to, as the slip names them or by their rule, and where it ended. */
function topicsOf(slip) {
  const named = Object.fromEntries((slip.envelope?.routingSlip ?? []).filter((step) => step.nextTopic).map((step) => [step.id, step.nextTopic]));
  const rows = slip.runs.flatMap((run) => [...(run.rows ?? []), ...(run.undoing ?? [])]).filter((row) => row.state !== "pending" && row.state !== "skipped" && (row.kind ?? "work") === "work");
  const ofSteps = rows.map((row) => named[row.step] ?? (row.undoes ? `internal.${row.undoes}.undo.v1` : `internal.${row.step}.v1`));
  const ends = { completed: [slip.envelope?.replyTo ?? "egress.deliver.v1"], "dead-lettered": ["internal.deadletter.v1"] }[slip.state] ?? [];
  return [...new Set(["internal.ingress.v1", ...ofSteps, ...ends, "slip.events"])];
}
