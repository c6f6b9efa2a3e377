// The frame around the pages: rail, search, status line, and which page is open.

import { h, mount } from "./lib/dom.js";
import { count, span } from "./lib/format.js";
import { begin, overview, watch } from "./lib/overview.js";
import { parse, to } from "./lib/router.js";
import { arrive, beginScroll } from "./lib/scroll.js";
import { isOnNats, known, learn, server } from "./lib/server.js";
import { errorBox } from "./parts/notice.js";
import { beginSearch } from "./parts/search_box.js";
import { beginTheme } from "./parts/theme.js";

// Each module has `title(parts)` and `show(root, {parts, query, signal})`; the signal is aborted when the page is left.
const PAGES = {
  "": () => import("./pages/overview.js"),
  topics: () => import("./pages/topics.js"),
  groups: () => import("./pages/groups.js"),
  "dead-letters": () => import("./pages/dead_letters.js"),
  "bus-dead-letters": () => import("./pages/bus_dead_letters.js"),
  slips: () => import("./pages/slips.js"),
  jobs: () => import("./pages/jobs.js"),
  pipeline: () => import("./pages/pipeline.js"),
};

const RAIL = [
  ["", "Overview", ({ problems }) => problems.filter((each) => each.level === "error" && !each.acknowledged).length],
  ["topics", "Topics"],
  ["groups", "Groups"],
  ["dead-letters", "Dead letters", ({ dead_letter_counts }) => dead_letter_counts.messages],
  ["slips", "Slips", ({ dead_letter_counts }) => dead_letter_counts.slips],
  ["jobs", "Jobs", ({ dead_letter_counts }) => dead_letter_counts.downloads],
  ["pipeline", "Pipeline"],
];

let leaving = new AbortController();

async function open() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const { parts, query: values } = parse(location.hash);
  const [name = "", ...rest] = parts;
  rail.update();
  // On a phone the rail is a row that may be wider than the window.
  document.querySelector("#rail [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  const main = document.getElementById("main");
  const root = h("div", { class: `page page-${name || "overview"}` });
  main.replaceChildren(root);
  arrive(root, signal);
  try {
    if (!Object.hasOwn(PAGES, name)) throw Object.assign(new Error(`there is no page ${name}: choose another`), { code: "NOT_FOUND" });
    const [page] = await Promise.all([PAGES[name](), known()]);
    if (signal.aborted) return;
    document.title = `${page.title(rest)} · Slipstream`;
    await page.show(root, { parts: rest, query: values, signal });
  } catch (error) {
    if (error.name !== "AbortError" && !signal.aborted) root.replaceChildren(errorBox(error, open));
  }
}

// Rail

/** Returns whether the console has what a page shows: jobs and tables may not be installed, or not known to it. */
function hasSource(page) {
  const source = { slips: "slips", jobs: "jobs", pipeline: "tables" }[page];
  return !source || !overview.now || overview.now.sources.includes(source);
}

const rail = mount(document.getElementById("rail"), () => {
  const [page = ""] = parse(location.hash).parts;
  const current = page === "bus-dead-letters" ? "dead-letters" : page;
  return RAIL.filter(([name]) => hasSource(name) || name === current).map(([name, label, badge]) => {
    const number = badge && overview.now ? badge(overview.now) : 0;
    return h(
      "a",
      { href: name ? to(name) : "#/", "aria-current": name === current ? "page" : null },
      label,
      number ? h("span", { class: "badge", "aria-label": `, ${count(number)}` }, number > 999 ? "999+" : number) : null,
    );
  });
});

// Status line

async function learnServer() {
  await learn();
  status.update();
}

const status = mount(document.getElementById("status"), () => {
  const isThere = overview.state === "connected";
  const words = { connected: "live", lost: "no connection, trying again", connecting: "connecting" };
  const facts = server.facts && [
    `v${server.facts.version}`,
    isOnNats() ? "on NATS" : `durability ${server.facts.durability}`,
    `up ${span(Date.now() - server.facts.started_ms)}`,
  ];
  return [
    facts && h("span", { class: "facts soft" }, facts.join(" · ")),
    h("span", { role: "status", class: `state ${isThere ? "good" : "bad"}` }, h("span", { class: "dot", "aria-hidden": "true" }), words[overview.state]),
  ];
});

let before = "";
watch(({ state }) => {
  if (state !== before && state === "connected") learnServer();
  if (state !== before) before = state;
  rail.update();
  status.update();
});

// Begin

setInterval(() => document.hidden || status.update(), 10_000);
window.addEventListener("hashchange", () => {
  // At once: who is typing into the search box by the time the page is there shall not lose a key.
  document.getElementById("main").focus();
  open();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // an address after # is a page here
  document.getElementById("main").focus();
});
beginScroll();
beginSearch();
beginTheme();
begin();
open();
