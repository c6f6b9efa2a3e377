// One dead letter by its place: #/dead-letters/dlq.TOPIC/PARTITION/OFFSET.

import { get, path } from "../lib/api.js";
import { h, mount } from "../lib/dom.js";
import { every } from "../lib/live.js";
import { to } from "../lib/router.js";
import { deadLetter } from "../parts/dead_letter.js";
import { act, errorBox } from "../parts/notice.js";
import { redrive } from "../parts/redrives.js";
import { skeleton } from "../parts/table.js";

const LOOK_MS = 3_000;

export async function show(root, { parts: [topic, partition, offset], signal }) {
  const state = { letter: null, error: null };
  let look = null;
  const view = mount(root, () => [
    h("h1", {}, h("a", { href: to("dead-letters") }, "Dead letters"), ` / ${topic} / ${partition} / ${offset}`),
    state.error ? errorBox(state.error, () => look()) : null,
    state.letter ? h("div", { class: "card" }, deadLetter(state.letter, again)) : state.error ? null : skeleton(),
  ]);

  async function again(event) {
    await act(event, () => redrive({ letters: [state.letter] }, "This dead letter:"));
    look();
  }

  look = every(
    LOOK_MS,
    async () => {
      try {
        state.letter = await get(path("v2", "dead-letters", topic, partition, offset), { signal });
        state.error = null;
      } catch (error) {
        if (error.name === "AbortError") return;
        state.error = error;
      }
      view.update();
    },
    signal,
  );
}
