// The messages of a topic: newest, from an offset or a time; older, newer, or as they come. One of them opens beside.

import { Mistyped, parseCount, parseTime } from "../lib/amounts.js";
import { h } from "../lib/dom.js";
import { bytes, count, plural } from "../lib/format.js";
import { LogWindow } from "../lib/log_window.js";
import { preview, isText, sizeOf } from "../lib/payload.js";
import { remember, to } from "../lib/router.js";
import { message } from "./message.js";
import { errorBox } from "./notice.js";
import { since } from "./since.js";
import { table } from "./table.js";

const ALL_MAX = 64; // partitions that are read at once

export class MessageBrowser {
  /** `query` is where the page's address says to begin; `changed` draws the page again. */
  constructor({ topic, query, signal, changed }) {
    Object.assign(this, { topic, signal, changed });
    this.partition = query.partition ?? "";
    this.start = query.start ?? (query.offset ? "offset" : query.time ? "time" : "newest");
    this.offset = query.offset ?? "";
    this.time = query.time ?? "";
    this.window = null;
    this.error = null;
    this.isBusy = false;
    this.turns = 0;
    this.following = null;
    this.opened = null;
    this.partitions = [];
    signal.addEventListener("abort", () => this.following?.abort());
  }

  /** What the topic is now; the first time it looks by itself. */
  learn(partitions) {
    const isFirst = !this.partitions.length;
    this.partitions = partitions;
    if (isFirst) this.look();
  }

  #chosen() {
    if (this.partition !== "") return this.partitions.filter(({ partition }) => String(partition) === this.partition);
    if (this.partitions.length <= ALL_MAX) return this.partitions;
    return this.partitions.filter(({ messages }) => messages).slice(0, ALL_MAX);
  }

  #leftOut() {
    const filled = this.partitions.filter(({ messages }) => messages).length;
    if (this.partition !== "" || filled <= ALL_MAX) return null;
    return h("p", { class: "soft" }, `Of ${count(filled)} partitions with messages the first ${ALL_MAX} are looked at: choose one to see another.`);
  }

  look() {
    this.stop();
    this.opened = null;
    remember({ partition: this.partition, offset: this.start === "offset" && this.offset, time: this.start === "time" && this.time });
    return this.#move(async (window) => {
      if (this.start === "offset") await window.from(parseCount(this.offset || "0", "an offset"));
      else if (this.start === "time") await window.since(parseTime(this.time || "1h"));
      else await window.newest();
    }, new LogWindow(this.topic, this.#chosen(), this.signal));
  }

  /** `step` is "older" or "newer". */
  turn(step) {
    this.stop();
    return this.#move((window) => window[step]());
  }

  /** What is asked for last counts: an answer to what was asked before comes too late. */
  async #move(how, window = this.window) {
    const turn = ++this.turns;
    this.isBusy = true;
    this.error = null;
    this.changed();
    try {
      await how(window);
      if (turn === this.turns) this.window = window;
    } catch (error) {
      if (error.name === "AbortError") return;
      if (turn === this.turns) this.error = error;
    }
    if (turn !== this.turns) return;
    this.isBusy = false;
    this.changed();
  }

  async follow() {
    if (this.following) return this.stop();
    if (this.isBusy) return;
    this.start = "newest";
    await this.look();
    if (this.error) return;
    const following = (this.following = new AbortController());
    this.changed();
    let ends = this.partitions;
    while (this.following === following) {
      try {
        ends = await this.window.follow(ends, following.signal);
      } catch (error) {
        if (error.name !== "AbortError") this.error = error;
        if (this.following === following) this.stop();
      }
      this.changed();
    }
  }

  stop() {
    this.following?.abort();
    this.following = null;
    this.changed();
  }

  open(shown) {
    this.opened = shown;
    this.changed();
    document.getElementById("opened")?.focus();
  }

  close() {
    const last = this.opened;
    this.opened = null;
    this.changed();
    document.getElementById(last && rowId(last))?.focus();
  }

  draw() {
    return h("section", { "aria-labelledby": "messages" }, h("h2", { id: "messages" }, "Messages"), this.#controls(), this.#leftOut(), this.error ? errorBox(this.error, this.error instanceof Mistyped ? null : () => this.look()) : null, this.#content());
  }

  #controls() {
    const set = (name) => (event) => {
      this[name] = event.target.value;
      this.changed();
    };
    const setAndLook = (name) => (event) => {
      this[name] = event.target.value;
      this.look();
    };
    const submit = (event) => {
      event.preventDefault();
      this.look();
    };
    const option = (value, label, chosen) => h("option", { value, selected: value === chosen }, label);
    return h(
      "form",
      { class: "filters", onsubmit: submit },
      h("label", {}, "Partition", h("select", { onchange: setAndLook("partition") }, option("", "all", this.partition), this.partitions.map(({ partition }) => option(String(partition), partition, this.partition)))),
      h("label", {}, "Begin with", h("select", { onchange: (event) => (event.target.value === "newest" ? setAndLook : set)("start")(event) }, option("newest", "the newest", this.start), option("offset", "an offset", this.start), option("time", "a time", this.start))),
      this.start === "offset" ? h("label", { key: "offset" }, "Offset", h("input", { value: this.offset, oninput: set("offset"), inputmode: "numeric", placeholder: "0", size: 10 })) : null,
      this.start === "time" ? h("label", { key: "time" }, "Time, UTC, or how long ago", h("input", { value: this.time, oninput: set("time"), placeholder: "1h, or 2026-11-18 02:24", size: 24 })) : null,
      h("button", { type: "submit" }, "Look"),
      h("button", { type: "button", "aria-pressed": String(Boolean(this.following)), onclick: () => this.follow(), title: "shows what is stored as it comes" }, this.following ? "Stop following" : "Follow"),
    );
  }

  #content() {
    if (!this.window) return this.error ? null : table([], null);
    const newestFirst = this.start === "newest";
    const rows = newestFirst ? this.window.messages.toReversed() : this.window.messages;
    return h(
      "div",
      { class: `split${this.opened ? " is-open" : ""}` },
      h("div", { class: "list" }, this.#pager(newestFirst), this.#table(rows)),
      this.opened ? this.#detail() : null,
    );
  }

  #table(rows) {
    const many = this.partitions.length > 1;
    return table(
      [
        { label: "Offset", number: true, value: (each) => this.#link(each) },
        ...(many ? [{ label: "Partition", number: true, value: (each) => each.partition }] : []),
        { label: "Stored", class: "nowrap", value: (each) => since(each.timestamp_ms) },
        // Beside an opened message there is no room for what it says itself.
        ...(this.opened ? [] : [{ label: "Key", class: "key-cell", value: (each) => (each.key ? h("code", {}, preview(each.key, each.key_encoding, 60)) : h("span", { class: "soft" }, "–")) }]),
        { label: "Value", class: "value-cell", value: (each) => h("code", { class: isText(each.value, each.encoding) ? null : "soft" }, preview(each.value, each.encoding)) },
        ...(this.opened ? [] : [{ label: "Size", number: true, value: (each) => bytes(sizeOf(each.value, each.encoding)) }]),
      ],
      rows,
      {
        label: "messages",
        key: rowId,
        empty: this.following ? "Nothing yet: whatever is stored will be here." : this.start === "newest" ? "There is no message here." : "There is no message here or later.",
        rowClass: (each) => (this.opened && rowId(each) === rowId(this.opened) ? "chosen" : ""),
        onRow: (each) => this.open(each),
      },
    );
  }

  #link(each) {
    const open = (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a tab of its own
      event.preventDefault();
      this.open(each);
    };
    return h("a", { id: rowId(each), href: to("topics", this.topic, each.partition, each.offset), onclick: open }, count(each.offset));
  }

  #pager(newestFirst) {
    const { messages, hasOlder, hasNewer } = this.window;
    const older = h("button", { type: "button", disabled: this.isBusy || !hasOlder, onclick: () => this.turn("older") }, newestFirst ? "Older ›" : "‹ Older");
    const newer = h("button", { type: "button", disabled: this.isBusy || !hasNewer || Boolean(this.following), onclick: () => this.turn("newer") }, newestFirst ? "‹ Newer" : "Newer ›");
    const shown = messages.length ? `${plural(messages.length, "message")}, ${newestFirst ? "newest" : "oldest"} first` : "";
    return h("div", { class: "pager" }, newestFirst ? [newer, older] : [older, newer], h("span", { class: "soft", role: "status" }, this.following ? ["following · ", shown] : shown));
  }

  #detail() {
    const { partition, offset } = this.opened;
    return h(
      "aside",
      { class: "detail card", "aria-labelledby": "opened", onkeydown: (event) => event.key === "Escape" && this.close() },
      h("div", { class: "detail-head" }, h("h2", { id: "opened", tabindex: "-1" }, h("a", { href: to("topics", this.topic, partition, offset) }, `${this.topic}/${partition}/${offset}`)), h("button", { type: "button", class: "quiet", onclick: () => this.close(), "aria-label": "Close the message" }, "✕")),
      message(this.topic, this.opened),
    );
  }
}

const rowId = ({ partition, offset }) => `m-${partition}-${offset}`;
