// What is told of a job while it happens. Keeps the newest lines only, however long the job is.

import { h } from "../lib/dom.js";
import { exact } from "../lib/format.js";
import { listen } from "../lib/live.js";

const KEPT = 5_000;
const SHOWN = 1_000;
const LEVELS = ["trace", "debug", "info", "warn", "error"];

/**
 * Reads the log of a job at `address` until `signal` is aborted. `onEntry` hears each entry, `isEnded()` tells whether
 * the job is over: a stream that ends then was read to its end, and is not asked for again until `again()`.
 */
export function jobLog(address, signal, { onEntry = () => {}, isEnded }) {
  const entries = [];
  const settings = { level: 0, text: "", follow: true };
  let dropped = 0;
  let next = null;
  let waiting = [];
  let reading = null;
  let isReading = false;
  let ends = 0;

  const lines = h("div", { class: "log-lines", role: "log", tabindex: "0", "aria-label": "log of the job", "aria-live": "off" });
  const state = h("span", { class: "soft small", role: "status" });
  const follow = h("input", { type: "checkbox", name: "follow", onchange: () => setFollow(follow.checked) });
  follow.checked = true;
  const element = h(
    "div",
    { class: "log" },
    h(
      "div",
      { class: "filters" },
      h("label", {}, "Level", h("select", { name: "level", onchange: (event) => change({ level: LEVELS.indexOf(event.target.value) }) }, LEVELS.slice(2).map((level, index) => h("option", { value: index ? level : "trace" }, index ? `${level} and worse` : "all")))),
      h("label", {}, "With these words", h("input", { type: "search", name: "words", oninput: (event) => change({ text: event.target.value.trim().toLowerCase() }) })),
      h("label", { class: "check" }, follow, "follow"),
      state,
    ),
    lines,
  );

  // The person who scrolls up wants to read there; at the end again they follow.
  lines.addEventListener("scroll", () => {
    const isAtEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 24;
    if (isAtEnd !== settings.follow) setFollow(isAtEnd, false);
  });

  function setFollow(isWanted, jump = true) {
    settings.follow = isWanted;
    follow.checked = isWanted;
    if (isWanted && jump) lines.scrollTop = lines.scrollHeight;
  }

  function change(values) {
    Object.assign(settings, values);
    lines.replaceChildren(...entries.filter(isWanted).slice(-SHOWN).map(line));
    if (settings.follow) lines.scrollTop = lines.scrollHeight;
    say();
  }

  const isWanted = (entry) => entry.level >= settings.level && (!settings.text || entry.search.includes(settings.text));

  function hear(log, lastId) {
    next = Number(lastId) + 1;
    const entry = entryOf(log);
    entries.push(entry);
    if (entries.length > KEPT) {
      entries.splice(0, entries.length - KEPT);
      dropped += 1;
    }
    onEntry(entry, log);
    // Hundreds may come at once: they are drawn together.
    if (!waiting.length) requestAnimationFrame(flush);
    waiting.push(entry);
  }

  function flush() {
    const fresh = waiting.filter(isWanted).slice(-SHOWN);
    waiting = [];
    lines.append(...fresh.map(line));
    while (lines.childElementCount > SHOWN) lines.firstElementChild.remove();
    if (settings.follow) lines.scrollTop = lines.scrollHeight;
    say();
  }

  function say() {
    const number = entries.filter(isWanted).length;
    const of = number === entries.length ? `${number} lines` : `${number} of ${entries.length} lines`;
    const more = number > SHOWN ? `, the last ${SHOWN} shown` : "";
    const gone = dropped ? `; ${dropped} older ones are not kept here` : "";
    state.textContent = of + more + gone + (isReading ? "" : isEnded() ? " · the job has ended" : " · connection lost, trying again");
  }

  function again() {
    ends = 0;
    if (reading && !reading.signal.aborted) return;
    reading = new AbortController();
    const { signal: mine } = reading;
    listen(
      address(next),
      { log: (log, id) => hear(log, id) },
      AbortSignal.any([signal, mine]),
      {
        resume: (lastId) => address(Number(lastId) + 1),
        onState: (now) => {
          isReading = now === "connected";
          // It ends with the job. Once more, for what was told between the two; then it is all there is.
          if (now === "lost" && isEnded() && (ends += 1) > 1) reading.abort();
          say();
        },
      },
    );
  }

  again();
  return { element, again };
}

function entryOf(log) {
  const level = LEVELS.indexOf((log.level ?? "LOG_LEVEL_TRACE").replace("LOG_LEVEL_", "").toLowerCase());
  const at = Number(log.timestamp_ms ?? 0);
  const resource = log.resource_id ?? "";
  const message = log.message ?? "";
  return { level, at, resource, message, code: log.fields?.code ?? "", search: `${resource} ${message} ${log.fields?.code ?? ""} ${log.fields?.url ?? ""}`.toLowerCase() };
}

function line({ level, at, resource, message, code }) {
  const name = LEVELS[level] ?? "trace";
  return h(
    "div",
    { class: `log-line is-${name}` },
    h("time", { title: exact(at) }, exact(at).slice(11, 23)),
    h("span", { class: "log-level" }, name),
    h("span", { class: "log-resource" }, resource),
    h("span", { class: "log-message" }, code && h("b", {}, code, " "), message),
  );
}
