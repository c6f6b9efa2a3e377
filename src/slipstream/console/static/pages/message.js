// One message by its place: #/topics/NAME/PARTITION/OFFSET.

import { get, path, query } from "../lib/api.js";
import { h, mount } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { to } from "../lib/router.js";
import { message } from "../parts/message.js";
import { skeleton } from "../parts/table.js";

export async function show(root, { parts, signal }) {
  const [topic, partition, offset] = parts;
  mount(root, () => [head(topic, partition, offset), skeleton()]);
  const read = (values) => get(path("v2", "topics", topic, "messages") + query({ partition, ...values }), { signal });
  const [here, before] = await Promise.all([read({ from: offset, limit: 2 }), read({ to: offset, last: 1 })]);
  const [found, next] = String(here.messages[0]?.offset) === offset ? here.messages : [null, here.messages[0]];
  root.replaceChildren();
  mount(root, () => [
    head(topic, partition, offset),
    h(
      "div",
      { class: "buttons" },
      neighbour(topic, before.messages[0], "‹ The one before"),
      neighbour(topic, next, "The one after ›"),
      h("a", { class: "button", href: to("topics", topic, { partition, offset }) }, "All from here on"),
    ),
    found ? h("div", { class: "card" }, message(topic, found)) : h("p", { class: "empty" }, `${topic}/${partition} has no message with offset ${count(Number(offset))}. Offsets count per topic: those in between are in its other partitions.`),
  ]);
}

const head = (topic, partition, offset) => h("h1", {}, h("a", { href: to("topics", topic) }, topic), ` / ${partition} / ${offset}`);

const neighbour = (topic, other, words) =>
  other ? h("a", { class: "button", href: to("topics", topic, other.partition, other.offset) }, words) : h("button", { type: "button", disabled: true }, words);
