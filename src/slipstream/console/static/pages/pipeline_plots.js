// The pipeline's report in a frame as high as it is: a page of its own, which is asked for only here.

import { h } from "../lib/dom.js";
import { ApiError } from "../lib/api.js";
import { errorBox } from "../parts/notice.js";
import { skeleton } from "../parts/table.js";
import { isDark } from "../parts/theme.js";

const REPORT = "/console/report";
const LEAST_PX = 400;

export async function plots(root, { signal }) {
  root.replaceChildren(skeleton(8));
  let response;
  try {
    // Asked for first, as a frame cannot say why it is empty.
    response = await fetch(REPORT, { signal, headers: { Accept: "text/html" } });
  } catch (error) {
    if (error.name === "AbortError") return;
    root.replaceChildren(errorBox(new ApiError(0, "UNREACHABLE", "the server does not answer: is it running, and can this browser reach it?")));
    return;
  }
  if (!response.ok) {
    root.replaceChildren(errorBox(await refusal(response), () => plots(root, { signal })));
    return;
  }
  const frame = h("iframe", { class: "report", title: "plots of the pipeline", src: REPORT });
  const watcher = new ResizeObserver(() => adapt(frame));
  const onTheme = () => {
    const inner = frame.contentDocument?.documentElement;
    if (inner) inner.dataset.theme = isDark() ? "dark" : "light";
  };
  frame.onload = () => {
    const inner = frame.contentDocument?.documentElement;
    if (inner) watcher.observe(inner);
    onTheme();
    adapt(frame);
  };
  document.addEventListener("themechange", onTheme, { signal });
  signal.addEventListener("abort", () => watcher.disconnect());
  root.replaceChildren(h("p", {}, h("a", { href: REPORT, target: "_blank" }, "Open it as a page of its own")), frame);
}

function adapt(frame) {
  const inner = frame.contentDocument?.body;
  if (inner) frame.style.height = `${Math.max(LEAST_PX, inner.scrollHeight + 24)}px`;
}

async function refusal(response) {
  const id = response.headers.get("X-Request-Id") ?? "";
  const said = await response.json().catch(() => ({}));
  return new ApiError(response.status, said.error ?? "UNKNOWN", said.message ?? `it answered ${response.status}`, id);
}
