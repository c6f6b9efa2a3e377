// Dead letters: grouped by cause, found by filter, sent back by the lot or one by one. One of them is dead_letter.js.

import { get, path, query as asQuery } from "../lib/api.js";
import { parseTime } from "../lib/amounts.js";
import { byCause, causeOf, lastError } from "../lib/causes.js";
import { h, mount } from "../lib/dom.js";
import { count, plural } from "../lib/format.js";
import { every } from "../lib/live.js";
import { overview, watch } from "../lib/overview.js";
import { preview } from "../lib/payload.js";
import { remember, to } from "../lib/router.js";
import { isOnNats } from "../lib/server.js";
import { deadLetter } from "../parts/dead_letter.js";
import { act, errorBox } from "../parts/notice.js";
import { redrive, redriveList } from "../parts/redrives.js";
import { since } from "../parts/since.js";
import { Stretch } from "../parts/stretch.js";
import { table } from "../parts/table.js";
import * as ofTheBus from "./bus_dead_letters.js";
import * as one from "./dead_letter.js";

const FILTERS = ["topic", "group", "error", "since", "until", "redriven"];
const PAGE = 500;
const AT_ONCE = 2_000;
const LOOK_MS = 1_000;

export const title = (parts) => (parts.length ? parts.join("/") : "Dead letters");

export async function show(root, context) {
  if (isOnNats()) return ofTheBus.show(root, context);
  if (context.parts.length >= 3) return one.show(root, context);
  return new DeadLetters(root, context).begin();
}

class DeadLetters {
  constructor(root, { query, signal }) {
    this.signal = signal;
    this.filter = Object.fromEntries(FILTERS.map((name) => [name, query[name] ?? ""]));
    // Without a word it is about what still needs somebody.
    this.filter.redriven = { true: "true", all: "" }[query.redriven] ?? "false";
    this.cause = query.cause ?? "";
    this.letters = null;
    this.next = null;
    this.stretch = new Stretch(() => this.view.update());
    this.redrives = [];
    this.opened = null;
    this.error = null;
    this.redrivesError = null;
    this.turn = 0;
    this.view = mount(root, () => this.draw());
  }

  begin() {
    this.look();
    every(LOOK_MS, () => this.#watchRedrives(), this.signal);
    let known = null;
    watch(({ now }) => {
      // More have died, or were sent back by somebody else: they are looked at again, unless somebody is reading one.
      if (now && now.dead_letters !== known && !this.opened && this.letters && this.letters.length <= AT_ONCE) this.look(true);
      known = now?.dead_letters ?? known;
      this.view.update();
    }, this.signal);
  }

  async #watchRedrives() {
    try {
      const { redrives } = await get("/v2/redrives", { signal: this.signal });
      const running = (list) => list.filter((each) => each.state === "running" && !each.dry_run).length;
      const hasEnded = running(redrives) < running(this.redrives);
      this.redrives = redrives;
      this.redrivesError = null;
      if (hasEnded) await this.look(true);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.redrivesError = error;
    }
    this.view.update();
  }

  #query() {
    const { topic, group, error, redriven } = this.filter;
    return { topic, group, error, redriven, ...this.#times() };
  }

  #times() {
    const { since: from, until } = this.filter;
    return { ...(from.trim() ? { since: parseTime(from) } : {}), ...(until.trim() ? { until: parseTime(until) } : {}) };
  }

  /** Reads what the filters match; quietly where it is only to see what changed. */
  async look(quietly = false) {
    const turn = ++this.turn;
    if (!quietly) {
      Object.assign(this, { letters: null, opened: null });
      this.stretch.restart();
    }
    this.view.update();
    try {
      const { found, next } = await this.#read(null, AT_ONCE);
      if (turn !== this.turn) return;
      Object.assign(this, { letters: found, next, error: null });
    } catch (error) {
      if (error.name === "AbortError" || turn !== this.turn) return;
      this.error = error;
    }
    this.view.update();
  }

  async #read(after, most) {
    const found = [];
    let next = after;
    do {
      const answer = await get("/v2/dead-letters" + asQuery({ ...this.#query(), limit: PAGE, after: next }), { signal: this.signal });
      found.push(...answer.dead_letters);
      next = answer.next;
    } while (next && found.length < most);
    return { found, next };
  }

  async #more(event) {
    const turn = this.turn;
    await act(event, async () => {
      const { found, next } = await this.#read(this.next, AT_ONCE);
      if (turn !== this.turn) return; // something else is looked at by now
      this.letters = [...this.letters, ...found];
      this.next = next;
    });
    this.view.update();
  }

  #set(name, value) {
    this.filter[name] = value;
    this.cause = "";
    this.#remember();
    this.look();
  }

  #remember() {
    remember({ ...this.filter, redriven: this.filter.redriven === "false" ? "" : this.filter.redriven || "all", cause: this.cause });
  }

  #choose(cause) {
    this.cause = this.cause === cause ? "" : cause;
    this.opened = null;
    this.stretch.restart();
    this.#remember();
    this.view.update();
  }

  async #redrive(event, chosen, what) {
    let started = [];
    const isWell = await act(event, async () => (started = await redrive(chosen, what)));
    if (isWell && started.length) {
      this.opened = null;
      await this.#watchRedrives();
      await this.look(true);
    }
  }

  #redriveAll(event) {
    const { topic, group, error } = this.filter;
    const filter = { ...(group ? { group } : {}), ...(error ? { error } : {}), ...this.#times() };
    const dead = overview.now?.topics.map((each) => each.topic).filter((name) => name.startsWith("dlq.")) ?? [];
    const topics = topic ? [topic] : dead.length ? dead : [...new Set(this.letters.map((each) => each.topic))];
    return this.#redrive(event, { filter, topics }, "All that the filters match and that was not sent back before:");
  }

  // Drawing

  draw() {
    const causes = this.letters && byCause(this.letters);
    const chosen = this.cause ? this.letters?.filter((each) => causeOf(each) === this.cause) : this.letters;
    const isRunning = this.redrives.some((each) => !each.dry_run);
    return [
      h("h1", {}, "Dead letters"),
      overview.now?.topics.some(({ topic, messages }) => topic.endsWith(".DLQ") && messages) ? h("p", {}, h("a", { href: to("bus-dead-letters") }, "Dead letters of the bus"), " are on a page of their own.") : null,
      this.#filters(),
      this.error || this.redrivesError ? errorBox(this.error ?? this.redrivesError, () => this.look()) : null,
      this.error && !this.letters ? null : [this.#summary(chosen), this.#causes(causes), this.#list(chosen)],
      isRunning ? h("section", { "aria-labelledby": "redrives" }, h("h2", { id: "redrives" }, "Redrives"), redriveList(this.redrives, () => this.#watchRedrives())) : null,
    ];
  }

  #filters() {
    const text = (name, label, more = {}) => h("label", {}, label, h("input", { value: this.filter[name], onchange: (event) => this.#set(name, event.target.value.trim()), ...more }));
    const topics = overview.now?.topics.filter((each) => each.topic.startsWith("dlq.")).map((each) => each.topic.slice(4)) ?? [];
    const known = this.filter.topic && !topics.includes(this.filter.topic) ? [this.filter.topic, ...topics] : topics;
    const choices = [["false", "not sent back"], ["true", "sent back"], ["all", "all"]];
    return h(
      "form",
      { class: "filters", onsubmit: (event) => event.preventDefault() },
      h("label", {}, "Topic", h("select", { onchange: (event) => this.#set("topic", event.target.value) }, h("option", { value: "", selected: !this.filter.topic }, "all"), known.map((name) => h("option", { value: name, selected: name === this.filter.topic }, name)))),
      text("group", "Group", { placeholder: "any", size: 9 }),
      text("error", "Error has", { type: "search", placeholder: "part of it", size: 14 }),
      text("since", "Died since", { placeholder: "1h, or a time", size: 11 }),
      text("until", "and before", { placeholder: "10m, or a time", size: 11 }),
      h("label", {}, "Show", h("select", { onchange: (event) => this.#set("redriven", event.target.value === "all" ? "" : event.target.value) }, choices.map(([value, label]) => h("option", { value, selected: value === (this.filter.redriven || "all") }, label)))),
    );
  }

  #summary(chosen) {
    if (!this.letters?.length) return null;
    const waiting = chosen.filter((each) => !each.redriven).length;
    return h(
      "div",
      { class: "summary" },
      h("p", { role: "status" }, h("strong", {}, plural(this.letters.length, "dead letter")), this.next ? " looked at; there are more. " : ` of ${plural(byCause(this.letters).length, "cause")}.`),
      this.next ? h("button", { type: "button", onclick: (event) => this.#more(event) }, "Look at more") : null,
      this.#redriveButton(chosen, waiting),
    );
  }

  /** With a cause chosen, those of it: nobody means by it what they have just looked away from. */
  #redriveButton(chosen, waiting) {
    const button = (words, redriven) => h("button", { type: "button", class: "primary", onclick: redriven }, words);
    if (this.cause) return waiting ? button(`Redrive ${count(waiting)} of this cause`, (event) => this.#redrive(event, { letters: chosen }, "Of this cause")) : null;
    return waiting || this.next ? button("Redrive all of these", (event) => this.#redriveAll(event)) : null;
  }

  #causes(causes) {
    const isQuiet = causes && !causes.length;
    const isFiltered = FILTERS.some((name) => this.filter[name] && name !== "redriven");
    if (isQuiet) return h("p", { class: isFiltered || this.filter.redriven !== "false" ? "empty" : "quiet-line" }, isFiltered || this.filter.redriven !== "false" ? "No dead letter fits these choices." : "There are no dead letters: nothing was given up.");
    return h(
      "section",
      { "aria-labelledby": "causes" },
      h("h2", { id: "causes" }, "Causes"),
      table(
        [
          { label: "Dead letters", number: true, value: (each) => h("strong", {}, count(each.letters.length)) },
          { label: "Cause", class: "wide", value: (each) => [h("span", { class: "tag" }, each.reason), " ", this.#causeButton(each)] },
          { label: "Topics", class: "name", value: (each) => each.topics.map((name, at) => [at ? ", " : "", h("a", { class: "plain-link", href: to("topics", name) }, name)]) },
          { label: "Groups", class: "name", value: (each) => each.groups.join(", ") },
          { label: "Newest", class: "nowrap", value: (each) => since(each.newestMs) },
          { label: "", value: (each) => (each.waiting ? h("button", { type: "button", onclick: (event) => this.#redrive(event, { letters: each.letters }, "Of this cause") }, `Redrive ${count(each.waiting)}`) : h("span", { class: "tag good" }, "sent back")) },
        ],
        causes,
        { label: "causes", key: (each) => each.cause, rowClass: (each) => (each.cause === this.cause ? "chosen" : ""), onRow: (each) => this.#choose(each.cause) },
      ),
    );
  }

  #causeButton({ cause, error }) {
    return h("button", { type: "button", class: "as-text", "aria-pressed": String(cause === this.cause), title: "show only these below", onclick: () => this.#choose(cause) }, error || "it gave no error");
  }

  #list(letters) {
    if (!letters?.length) return null;
    const rows = letters.toSorted((one, other) => other.timestamp_ms - one.timestamp_ms || other.offset - one.offset);
    return h(
      "section",
      { "aria-labelledby": "letters" },
      h("h2", { id: "letters" }, this.cause ? ["Of this cause ", h("button", { type: "button", class: "quiet", onclick: () => this.#choose(this.cause) }, "show all")] : "Newest"),
      h(
        "div",
        { class: `split${this.opened ? " is-open" : ""}` },
        h("div", { class: "list" }, this.#table(this.stretch.of(rows)), this.stretch.button(rows)),
        this.opened ? this.#detail() : null,
      ),
    );
  }

  #table(rows) {
    return table(
      [
        { label: "Dead letter", class: "name", value: (each) => this.#link(each) },
        { label: "Died", class: "nowrap", value: (each) => since(each.timestamp_ms) },
        // Beside an opened one there is no room for what it says itself.
        ...(this.opened ? [] : [{ label: "Group", value: (each) => each.envelope.dlq.group }, { label: "Attempts", number: true, value: (each) => count(each.envelope.dlq.attempts) }]),
        { label: "Last error", class: "value-cell", value: (each) => [each.redriven ? h("span", { class: "tag good" }, "sent back") : "", " ", lastError(each)] },
        ...(this.opened ? [] : [{ label: "Key", class: "key-cell", value: (each) => (each.key ? h("code", {}, preview(each.key, each.key_encoding, 60)) : h("span", { class: "soft" }, "–")) }]),
      ],
      rows,
      { label: "dead letters", key: placeOf, rowClass: (each) => (this.opened && placeOf(each) === placeOf(this.opened) ? "chosen" : ""), onRow: (each) => this.#open(each) },
    );
  }

  #link(each) {
    const open = (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.#open(each);
    };
    return h("a", { id: placeOf(each), href: to("dead-letters", each.topic, each.partition, each.offset), onclick: open }, placeOf(each));
  }

  async #open(each) {
    this.opened = each;
    this.view.update();
    document.getElementById("opened")?.focus();
    try {
      // The list leaves out the attempts with their tracebacks.
      const whole = await get(path("v2", "dead-letters", each.topic, each.partition, each.offset), { signal: this.signal });
      if (this.opened !== each) return;
      this.opened = whole;
    } catch (error) {
      if (error.name === "AbortError") return;
      this.error = error;
    }
    this.view.update();
  }

  #close() {
    const last = this.opened;
    this.opened = null;
    this.view.update();
    document.getElementById(placeOf(last))?.focus();
  }

  #detail() {
    const { topic, partition, offset } = this.opened;
    return h(
      "aside",
      { class: "detail card", "aria-labelledby": "opened", onkeydown: (event) => event.key === "Escape" && this.#close() },
      h("div", { class: "detail-head" }, h("h2", { id: "opened", tabindex: "-1" }, h("a", { href: to("dead-letters", topic, partition, offset) }, placeOf(this.opened))), h("button", { type: "button", class: "quiet", onclick: () => this.#close(), "aria-label": "Close the dead letter" }, "✕")),
      deadLetter(this.opened, (event) => this.#redrive(event, { letters: [this.opened] }, "This dead letter:")),
    );
  }
}

const placeOf = ({ topic, partition, offset }) => `${topic}/${partition}/${offset}`;
