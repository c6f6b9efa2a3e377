// What a person can do about a slip: decide where it waits, run it again, end it. The router does it as soon as it looks.

import { ApiError, path, post } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { ask } from "./ask.js";
import { toast } from "./notice.js";

const NAME = "decided-by";

/** Words to steps that wait, of the slip itself or of its branches. */
export function waitingSteps(slip) {
  const found = [];
  for (const row of slip.runs?.at(-1)?.rows ?? []) {
    if (row.kind === "wait" && row.state === "waiting" && row.detail !== "chunks") {
      found.push({ id: slip.correlationId, step: row.step, since: row.beganAt, isApproval: row.detail !== "signal", branch: slip.branch ?? "" });
    }
    for (const branch of row.branches ?? []) found.push(...waitingSteps(branch));
  }
  return found;
}

export function decisionButtons(waiting, done) {
  const name = `${waiting.step} of ${waiting.id}`;
  if (!waiting.isApproval) {
    return [h("button", { type: "button", class: "primary", onclick: () => decide(waiting, "approve", "Signal", done) }, `Give ${waiting.step} its signal…`)];
  }
  return [
    h("button", { type: "button", class: "primary", "aria-label": `Approve ${name}`, onclick: () => decide(waiting, "approve", "Approve", done) }, "Approve…"),
    h("button", { type: "button", class: "danger", "aria-label": `Deny ${name}`, onclick: () => decide(waiting, "deny", "Deny", done) }, "Deny…"),
  ];
}

async function decide({ id, step }, decision, word, done) {
  const isDenied = decision === "deny";
  const given = await ask({
    title: `${word} ${step} of ${id}?`,
    text: isDenied ? `${step} has failed then, and what was done before it is undone, the last first. The first word counts.` : "The message goes on. The first word counts.",
    action: word,
    danger: isDenied,
    fields: [
      { name: "by", label: "Your name", value: remembered(), required: true, autocomplete: "name" },
      { name: "note", label: "Note; the message carries it on" },
      ...(isDenied ? [] : [{ name: "data", label: "Data for the steps that follow, as JSON; may be empty", type: "textarea" }]),
    ],
    run: ({ by, note, data = "" }) => post(path("v2", "slips", id, "signals"), { step, decision, by, note, ...(data.trim() ? { data: parsed(data) } : {}) }),
  });
  if (!given) return;
  remember(given.by);
  toast(`${step} is ${{ approve: "approved", deny: "denied" }[decision]}: the router takes it up`);
  done();
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new ApiError(0, "INVALID_ARGUMENT", `the data is no JSON: ${error.message}`, "");
  }
}

export async function rerun(slip, from, done) {
  const steps = [...new Set((slip.runs ?? []).flatMap((run) => run.rows ?? []).map((row) => row.step))];
  const first = from || slip.standing?.againFrom || steps[0];
  const given = await ask({
    title: `Run ${slip.correlationId} again?`,
    text: [
      "It begins at this step, with the payload as it was when the message came there, and goes through all that follow.",
      slip.state === "under way" ? "It has not ended: what is under way of it is dropped." : "",
    ].filter(Boolean),
    action: "Run it again",
    fields: [{ name: "from", label: "From which step?", options: steps, value: first }],
    run: ({ from: step }) => post(path("v2", "slips", slip.correlationId, "reruns"), { from: step }),
  });
  if (!given) return;
  toast(`it runs again from ${given.from}`);
  done();
}

export async function cancel(slip, done) {
  const given = await ask({
    title: `Cancel ${slip.correlationId}?`,
    text: "What remains is skipped, what was done is undone, the last first, and it ends as a dead letter. A step that is at work finishes first.",
    action: "Cancel it",
    typed: slip.correlationId,
    fields: [{ name: "reason", label: "Why? It stands in the dead letter" }],
    run: ({ reason }) => post(path("v2", "slips", slip.correlationId, "cancellation"), { reason }),
  });
  if (!given) return;
  toast("it is cancelled: the router takes it up");
  done();
}

function remembered() {
  try {
    return localStorage.getItem(NAME) ?? "";
  } catch {
    return ""; // a browser that keeps nothing
  }
}

function remember(name) {
  try {
    localStorage.setItem(NAME, name);
  } catch {
    // then it is typed again
  }
}
