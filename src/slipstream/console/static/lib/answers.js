// What a list shows: asked for again and again while the page is open, and when somebody has changed what is asked.

import { get } from "./api.js";
import { every } from "./live.js";

const TYPING_MS = 250;

/**
 * Asks `address()` every so often. `found` is the newest answer, `error` why there is none newer; `changed` hears of
 * both. `look()` asks now, `lookSoon()` when the person has stopped typing.
 */
export function answers(ms, address, changed, signal) {
  const kept = { found: null, error: null };
  let typing = 0;
  kept.look = every(
    ms,
    async () => {
      try {
        kept.found = await get(address(), { signal });
        kept.error = null;
      } catch (failure) {
        if (failure.name === "AbortError") return;
        kept.error = failure;
      }
      changed();
    },
    signal,
  );
  kept.lookSoon = () => {
    clearTimeout(typing);
    typing = setTimeout(kept.look, TYPING_MS);
  };
  return kept;
}
