// The box that takes any id and goes there: at once where it can only mean one thing, else by a list of what it may mean.

import { get, query } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { errorBox } from "./notice.js";

const form = document.getElementById("search");
const text = document.getElementById("search-text");
const hits = document.getElementById("search-hits");

/** What was asked for last counts, and nothing once the person has gone elsewhere. */
let asking = new AbortController();

export function beginSearch() {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (text.value.trim()) find(text.value.trim());
  });
  hits.addEventListener("click", (event) => event.target.closest("a") && close(true));
  form.addEventListener("keydown", onKey);
  text.addEventListener("input", () => close(false)); // what is listed was found for other words
  document.addEventListener("click", (event) => form.contains(event.target) || close(false));
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    text.focus();
  });
  window.addEventListener("hashchange", () => asking.abort());
}

async function find(wanted) {
  asking.abort();
  asking = new AbortController();
  try {
    const { hits: found } = await get("/v2/search" + query({ q: wanted }), { signal: asking.signal });
    if (found.length === 1) {
      location.hash = found[0].link;
      return close(true);
    }
    show(
      found.length
        ? found.map((hit) => h("a", { href: hit.link }, h("span", { class: "kind" }, hit.kind), " ", hit.text))
        : [h("p", {}, `nothing here is called ${wanted}: no slip, job, topic, group or message`)],
    );
  } catch (error) {
    if (error.name !== "AbortError") show([errorBox(error)]);
  }
}

function show(nodes) {
  hits.replaceChildren(...nodes);
  hits.hidden = false;
  hits.querySelector("a")?.focus();
}

function close(clear) {
  asking.abort();
  hits.hidden = true;
  if (clear) text.value = "";
}

function onKey(event) {
  if (hits.hidden) return;
  if (event.key === "Escape") {
    close(false);
    text.focus();
  }
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const places = [text, ...hits.querySelectorAll("a")];
  places[(places.indexOf(document.activeElement) + step + places.length) % places.length].focus();
}
