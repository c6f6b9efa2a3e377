// Dead letters on NATS: the bus keeps them in topics of their own, which are looked at like any other.

import { get } from "../lib/api.js";
import { h, mount } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { every } from "../lib/live.js";
import { to } from "../lib/router.js";
import { errorBox } from "../parts/notice.js";
import { table } from "../parts/table.js";

const SUFFIX = ".DLQ";
const LOOK_MS = 3_000;

export async function show(root, { signal }) {
  let topics = null;
  let error = null;
  const view = mount(root, () => [
    h("h1", {}, "Dead letters"),
    h("p", { class: "soft" }, "On NATS what the bus has given up lies in a topic of its own beside the one it came from, with the reason in its attributes. Publish it again from there once the cause is mended."),
    error ? errorBox(error) : list(topics),
  ]);
  const look = async () => {
    try {
      ({ topics } = await get("/v2/topics", { signal }));
      error = null;
    } catch (failed) {
      if (failed.name === "AbortError") return;
      error = failed;
    }
    view.update();
  };
  every(LOOK_MS, look, signal);
}

function list(topics) {
  const dead = topics?.filter((topic) => topic.name.endsWith(SUFFIX) && topic.messages);
  return table(
    [
      { label: "Topic", value: (topic) => h("a", { href: to("topics", topic.name.slice(0, -SUFFIX.length)) }, topic.name.slice(0, -SUFFIX.length)) },
      { label: "Dead letters", number: true, value: (topic) => count(topic.messages) },
      { label: "", value: (topic) => h("a", { class: "button", href: to("topics", topic.name) }, "look at them") },
    ],
    dead ?? null,
    { label: "dead letters", key: (topic) => topic.name, empty: "There are none: nothing was given up." },
  );
}
