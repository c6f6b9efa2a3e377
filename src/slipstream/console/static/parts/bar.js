// A bar in a cell: how much of the whole, in segments of different states.

import { s } from "../lib/dom.js";

/** `segments` is [{share: 0.5, state: "done", title: "12 stored"}]; shares add up to at most 1. */
export function bar(segments, label) {
  let at = 0;
  return s(
    "svg",
    { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": label },
    s("rect", { class: "bar-back", width: 100, height: 8 }),
    segments.map(({ share, state, title }) => {
      const width = Math.max(0, Math.min(1, share || 0)) * 100;
      const rect = s("rect", { class: `bar-${state}`, x: at, width, height: 8 }, title && s("title", {}, title));
      at += width;
      return rect;
    }),
  );
}
