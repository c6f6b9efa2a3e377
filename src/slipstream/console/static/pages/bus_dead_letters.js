// Dead letters of the bus, which keeps them in topics such as orders.DLQ: listed, sent back and discarded.

import { get, path, post, query as asQuery, remove } from "../lib/api.js";
import { h, mount } from "../lib/dom.js";
import { count, plural } from "../lib/format.js";
import { every } from "../lib/live.js";
import { remember, to } from "../lib/router.js";
import { isOnNats } from "../lib/server.js";
import { ask } from "../parts/ask.js";
import { act, errorBox, toast } from "../parts/notice.js";
import { since } from "../parts/since.js";
import { table } from "../parts/table.js";

const FILTERS = ["topic", "group", "error"];
const LOOK_MS = 15_000;

const placeOf = (letter) => `${letter.topic}/${letter.partition}/${letter.offset}`;
const callOf = (letter) => path("v2", "bus-dead-letters", letter.topic, letter.partition, letter.offset);

export const title = () => "Dead letters of the bus";

export async function show(root, { query, signal }) {
  const filter = Object.fromEntries(FILTERS.map((name) => [name, query[name] ?? ""]));
  let letters = null;
  let next = null;
  let before = []; // where each page up to this one begins
  let opened = null;
  let error = null;

  const view = mount(root, () => [
    h("h1", {}, isOnNats() ? "Dead letters" : "Dead letters of the bus"),
    h("form", { class: "filters", onsubmit: (event) => event.preventDefault() }, field("topic", "Topic", "all"), field("group", "Group", "any"), field("error", "Error message has", "part of it")),
    error ? errorBox(error, () => look()) : null,
    letters?.length ? h("p", { role: "status" }, h("strong", {}, plural(letters.length, "dead letter")), before.length ? ` of page ${before.length + 1}` : "", next ? "; there are more" : "", " ", h("button", { type: "button", onclick: redriveAll }, `Redrive ${count(letters.length)}`)) : null,
    pages(),
    error && !letters ? null : list(),
    detail(),
  ]);

  function field(name, label, placeholder) {
    const changed = (event) => {
      filter[name] = event.target.value.trim();
      remember(filter);
      before = [];
      look();
    };
    return h("label", {}, label, h("input", { value: filter[name], placeholder, size: 14, onchange: changed }));
  }

  function pages() {
    if (!next && !before.length) return null;
    const turn = (label, places) => h("button", { type: "button", onclick: () => ((before = places), look()) }, label);
    return h("div", { class: "buttons" }, before.length ? turn("First page", []) : null, next ? turn("Next page", [...before, next]) : null);
  }

  function list() {
    return table(
      [
        { label: "Dead letter", class: "name", value: (letter) => h("button", { type: "button", class: "quiet", onclick: () => open(letter) }, placeOf(letter)) },
        { label: "Died", class: "nowrap", value: (letter) => since(letter.died_ms) },
        { label: "Topic", class: "name", value: (letter) => h("a", { href: to("topics", letter.origin) }, letter.origin) },
        { label: "Group", value: (letter) => letter.group || "-" },
        { label: "Attempts", number: true, value: (letter) => count(letter.attempts) },
        { label: "Error message", value: (letter) => letter.reason || "-" },
      ],
      letters,
      { label: "dead letters", key: placeOf, empty: FILTERS.some((name) => filter[name]) ? "No dead letter fits these choices." : "There are no dead letters: nothing was given up." },
    );
  }

  function detail() {
    const letter = opened;
    if (!letter || !letters?.some((each) => placeOf(each) === placeOf(letter))) return null;
    return h(
      "section",
      { class: "card", "aria-labelledby": "opened" },
      h("h2", { id: "opened" }, placeOf(letter)),
      h("p", {}, letter.reason || "Something else than the bus has put it here, without a reason."),
      h("p", { class: "soft" }, `Key ${letter.key || "-"}. `, Object.entries(letter.attributes).map(([name, value]) => `${name}=${value}`).join(" ")),
      h("pre", {}, letter.value),
      h("div", { class: "buttons" }, h("button", { type: "button", class: "primary", onclick: (event) => redriveOne(event, letter) }, "Redrive"), h("button", { type: "button", class: "danger", onclick: (event) => discard(event, letter) }, "Discard")),
    );
  }

  /** The list has only the beginning of a large message. */
  async function open(letter) {
    try {
      opened = await get(callOf(letter), { signal });
      error = null;
    } catch (failed) {
      if (failed.name === "AbortError") return;
      error = failed;
    }
    view.update();
  }

  async function redriveOne(event, letter) {
    await act(event, () => post(`${callOf(letter)}/redrive`, {}), `${placeOf(letter)} was sent back to ${letter.origin}`);
    await look();
  }

  async function redriveAll() {
    const chosen = letters;
    await ask({
      title: `Redrive ${plural(chosen.length, "dead letter")}`,
      text: "Each is published again to the topic it came from, where every group gets it, and is no dead letter any more.",
      action: `Redrive ${count(chosen.length)}`,
      run: async () => {
        let sent = 0;
        for (const letter of chosen) sent += await redriveIfThere(letter);
        toast(`${plural(sent, "dead letter")} sent back`);
      },
    });
    await look();
  }

  /** Returns 0 if another has redriven or discarded it meanwhile. */
  async function redriveIfThere(letter) {
    try {
      await post(`${callOf(letter)}/redrive`, {});
      return 1;
    } catch (failed) {
      if (failed.code !== "NOT_FOUND") throw failed;
      return 0;
    }
  }

  async function discard(event, letter) {
    const sure = await ask({ title: `Discard ${placeOf(letter)}?`, text: "The message is given up for good.", action: "Discard it", danger: true, run: () => remove(callOf(letter)) });
    if (sure) toast(`${placeOf(letter)} was discarded`);
    await look();
  }

  async function look() {
    try {
      ({ dead_letters: letters, next } = await get("/v2/bus-dead-letters" + asQuery({ ...filter, after: before.at(-1) ?? "" }), { signal }));
      error = null;
      if (!letters.length && before.length) {
        before = before.slice(0, -1); // all of this page were handled
        return await look();
      }
    } catch (failed) {
      if (failed.name === "AbortError") return;
      error = failed;
    }
    view.update();
  }

  every(LOOK_MS, look, signal);
}
