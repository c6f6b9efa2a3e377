// One stream of the overview for the whole page: rates, problems and parts, shared by status line, rail and pages.

import { listen } from "./live.js";

const listeners = new Set();

/** `heardMs` is when it last said something. */
export const overview = { now: null, history: null, state: "connecting", heardMs: 0 };

/** Calls `hear` now, if something is known, and at every change, until `signal` is aborted. */
export function watch(hear, signal) {
  listeners.add(hear);
  signal?.addEventListener("abort", () => listeners.delete(hear));
  if (overview.now || overview.state === "lost") hear(overview);
}

const HISTORY_MS = 10 * 60 * 1000;
const STEP_MS = 5_000;

export function begin() {
  listen(
    "/v2/overview",
    {
      history: (history) => {
        overview.history = history;
      },
      overview: (now) => {
        overview.now = now;
        overview.heardMs = Date.now();
        remember(now);
        tell();
      },
    },
    new AbortController().signal,
    {
      onState: (state) => {
        overview.state = state;
        tell();
      },
    },
  );
}

/** The server sends the history once; what follows is added here. */
function remember(now) {
  const history = overview.history;
  if (!history || now.time_ms - (history.time_ms.at(-1) ?? 0) < STEP_MS) return;
  for (const [name, values] of Object.entries(history)) values.push(now[name] ?? 0);
  while (history.time_ms.length && now.time_ms - history.time_ms[0] > HISTORY_MS) {
    for (const values of Object.values(history)) values.shift();
  }
}

const tell = () => listeners.forEach((hear) => hear(overview));
