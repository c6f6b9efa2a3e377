// Steps that nobody may work at: which, why, until when, and the button that lets them go on.

import { get, path, put, remove } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { every } from "../lib/live.js";
import { ask } from "./ask.js";
import { act, toast } from "./notice.js";
import { clock } from "./slip_words.js";

const LOOK_MS = 4_000;

/** Follows them until `signal` is aborted; `draw()` shows what is paused, `isPaused(step)` tells. */
export function pausedSteps(signal, onChange) {
  let steps = [];
  const look = every(
    LOOK_MS,
    async () => {
      try {
        ({ steps } = await get("/v2/steps", { signal }));
      } catch {
        return; // what the page itself asks for says why nothing can be known
      }
      onChange();
    },
    signal,
  );
  const paused = () => steps.filter((each) => each.paused);
  return {
    isPaused: (step) => paused().some((each) => each.step === step),
    pause: (step) => pause(step).then(look),
    resume: (event, step) => resume(event, step).then(look),
    draw: () => [
      paused().length
        ? h(
            "ul",
            { class: "problems", "aria-label": "paused steps" },
            paused().map(({ step, reason, untilMs }) =>
              h(
                "li",
                { class: "problem warning", key: `paused-${step}` },
                h("span", { class: "level" }, "paused"),
                h("span", { class: "words" }, h("strong", {}, step), reason && `: ${reason}`, h("span", { class: "soft" }, untilMs ? ` until ${clock(untilMs)}` : " until it is resumed")),
                h("button", { type: "button", onclick: (event) => resume(event, step).then(look) }, "Resume"),
              ),
            ),
          )
        : null,
    ],
  };
}

async function pause(step) {
  const given = await ask({
    title: `Pause ${step}?`,
    text: `Nobody begins work at ${step} until it is resumed, for any message. Who is at work there finishes; what waits loses no attempt by it.`,
    action: "Pause it",
    fields: [
      { name: "reason", label: "Why? Whoever looks at a message that waits there reads it" },
      { name: "minutes", label: "For how many minutes? Empty: until it is resumed", type: "number", min: 1, step: "any" },
    ],
    run: ({ reason, minutes }) => put(path("v2", "steps", step, "pause"), { reason, seconds: minutes ? Number(minutes) * 60 : null }),
  });
  if (given) toast(`${step} is paused`);
}

async function resume(event, step) {
  await act(event, () => remove(path("v2", "steps", step, "pause")), `${step} goes on`);
}
