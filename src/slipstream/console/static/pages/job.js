// One job: how far it is, what failed and where, its resources, and what is told while it happens.

import { get, path, query as queryOf } from "../lib/api.js";
import { h, mount } from "../lib/dom.js";
import { bytes, count, plural, span } from "../lib/format.js";
import { every } from "../lib/live.js";
import { to } from "../lib/router.js";
import { bar } from "../parts/bar.js";
import { copyButton, curl } from "../parts/copy.js";
import { meaningOf } from "../parts/failure_codes.js";
import { jobActions } from "../parts/job_actions.js";
import { jobLog } from "../parts/job_log.js";
import { ENDED, jobTag, progress, progressWords, transferWords } from "../parts/job_progress.js";
import { errorBox } from "../parts/notice.js";
import { deal } from "../parts/replay.js";
import { since } from "../parts/since.js";
import { Stretch } from "../parts/stretch.js";
import { skeleton, table } from "../parts/table.js";

const LOOK_MS = 1_000;
const LOOK_ENDED_MS = 5_000;
/** What is replayed begins when a worker takes it up: that is waited for. */
const EAGER_MS = 10_000;

export async function show(root, { parts, signal }) {
  const [id] = parts;
  const address = path("v2", "jobs", id);
  const hosts = new Map(); // by resource: the ledger keeps no URLs, the log tells them
  const asked = { state: "", words: "" };
  const stretch = new Stretch(update);
  let job = null;
  let error = null;
  let letters = null;
  let looked = 0;
  let eagerUntil = 0;
  let log = null;

  const look = async () => {
    looked = Date.now();
    try {
      const found = await get(address, { signal });
      // A replay may be over before anybody has looked: then it has ended once more, and its log tells how.
      const isBegunAgain = job && ENDED.has(job.state) && found.updated_ms !== job.updated_ms;
      job = found;
      error = null;
      if (isBegunAgain) log?.again();
      if (job.resources_failed && letters?.failed !== job.resources_failed) await lookAtLetters();
    } catch (failure) {
      if (failure.name === "AbortError") return;
      error = failure;
    }
    // Nothing is known of a job that is not there: nothing is asked of its log.
    if (job && !log) beginLog();
    update();
  };
  const lookAtLetters = async () => {
    const answer = await get("/v2/job-dead-letters" + queryOf({ job_id: id, limit: 1000 }), { signal });
    for (const letter of answer.letters) hosts.set(letter.resource_id, hostOf(letter.url));
    letters = { ...answer, failed: job.resources_failed };
  };
  const beginLog = () => {
    const at = (from) => path("v2", "jobs", id, "logs") + queryOf({ follow: true, since_offset: from });
    let isTold = false;
    log = jobLog(at, signal, {
      isEnded: () => ENDED.has(job.state),
      onEntry: (entry, { fields }) => {
        if (!fields?.url || !entry.resource || hosts.has(entry.resource)) return;
        hosts.set(entry.resource, hostOf(fields.url));
        if (!isTold) setTimeout(() => ((isTold = false), lower.update()), 200);
        isTold = true;
      },
    });
    logPlace.replaceChildren(h("h2", { id: "log" }, "Log"), log.element);
  };

  const upperRoot = h("div");
  const logPlace = h("section", { "aria-labelledby": "log" });
  const lowerRoot = h("div");
  root.append(upperRoot, logPlace, lowerRoot);
  const again = async () => {
    letters = null;
    eagerUntil = Date.now() + EAGER_MS;
    await look();
  };
  const upper = mount(upperRoot, () => [
    h("div", { class: "page-head" }, h("p", { class: "crumbs" }, h("a", { href: to("jobs") }, "Jobs"), " /"), h("h1", { class: "mono" }, id), job && jobTag(job.state)),
    error && errorBox(error, look),
    job ? head(job, { letters, hosts, address, again }) : !error && skeleton(6),
  ]);
  const lower = mount(lowerRoot, () => job && resources(job, hosts, asked, stretch));
  function update() {
    upper.update();
    lower.update();
  }
  const isCalm = () => (error || (job && ENDED.has(job.state))) && Date.now() > eagerUntil && Date.now() - looked < LOOK_ENDED_MS;
  every(LOOK_MS, () => (isCalm() ? undefined : look()), signal);
}

export function hostOf(url) {
  try {
    return new URL(url).host;
  } catch {
    return "no URL";
  }
}

// How far it is

function head(job, { letters, hosts, address, again }) {
  const isOver = ENDED.has(job.state);
  const failed = (job.resources ?? []).filter((each) => each.state === "failed");
  return [
    h(
      "p",
      { class: "facts-line soft" },
      h("span", {}, job.job_type),
      h("span", {}, job.tenant ? `tenant ${job.tenant}` : "no tenant"),
      h("span", {}, "begun ", since(job.created_ms)),
      h("span", {}, isOver ? `took ${span(job.updated_ms - job.created_ms)}` : `under way for ${span(Date.now() - job.created_ms)}`),
      h("span", {}, copyButton(() => curl(address), "Copy as curl")),
    ),
    h(
      "section",
      { class: "card job-progress", "aria-label": "progress" },
      h("p", { class: "unseen", role: "status" }, `job ${job.state}`), // the words below count: they would be read aloud every second
      h("p", { class: "job-words" }, progressWords(job), transferWords(job) ? h("span", { class: "soft" }, ` · ${transferWords(job)}`) : null),
      progress(job),
      jobActions(job, again),
      job.resources_failed
        ? h(
            "div",
            { class: "buttons" },
            h("button", { type: "button", class: "primary", onclick: (event) => deal(event, { select: { job_id: job.job_id }, what: "of this job", done: again }) }, "Replay what failed…"),
            h("button", { type: "button", class: "danger", onclick: (event) => deal(event, { select: { job_id: job.job_id }, what: "of this job", discard: true, done: again }) }, "Discard…"),
            letters && h("span", { class: "soft small" }, letters.total ? `${plural(letters.total, "dead letter")} open` : "its dead letters were dealt with"),
          )
        : null,
    ),
    failed.length ? failures(job, failed, hosts, again) : null,
  ];
}

function failures(job, failed, hosts, again) {
  const byCode = grouped(failed, (each) => each.error_code || "no code");
  const byHost = grouped(failed, (each) => hosts.get(each.resource_id) ?? "not told yet");
  const share = (number) => bar([{ share: number / failed.length, state: "failed" }], `${number} of ${failed.length}`);
  return h(
    "section",
    { "aria-labelledby": "failures" },
    h("h2", { id: "failures" }, "Why it failed"),
    h(
      "div",
      { class: "two" },
      table(
        [
          { label: "Code", value: ({ name }) => h("div", {}, h("code", {}, name), h("span", { class: "soft small block" }, meaningOf(name))) },
          { label: "Failed", number: true, value: ({ rows }) => count(rows.length) },
          { label: "Share", class: "share", value: ({ rows }) => share(rows.length) },
          { label: "", value: ({ name, rows }) => h("button", { type: "button", class: "link small when", "aria-label": `Replay ${rows.length} with ${name}`, onclick: (event) => deal(event, { select: { job_id: job.job_id, code: name }, what: `with ${name}`, done: again }) }, "replay…") },
        ],
        byCode,
        { label: "failures by code", key: ({ name }) => name },
      ),
      table(
        [
          { label: "Host", value: ({ name }) => h("code", {}, name) },
          { label: "Failed", number: true, value: ({ rows }) => count(rows.length) },
          { label: "Share", class: "share", value: ({ rows }) => share(rows.length) },
        ],
        byHost,
        { label: "failures by host", key: ({ name }) => name },
      ),
    ),
  );
}

export function grouped(rows, nameOf) {
  const groups = new Map();
  for (const row of rows) {
    const name = nameOf(row);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(row);
  }
  return [...groups].map(([name, found]) => ({ name, rows: found })).sort((one, other) => other.rows.length - one.rows.length);
}

// Resources

const TONES = { completed: "good", failed: "bad", in_progress: "accent" };
const WORDS = { queued: "queued", in_progress: "in progress", failed: "failed", completed: "stored" };

function resources(job, hosts, asked, stretch) {
  const all = job.resources ?? [];
  const words = asked.words.toLowerCase();
  const found = all.filter(
    (each) =>
      (!asked.state || each.state === asked.state) &&
      (!words || `${each.resource_id} ${each.error_code} ${each.error_message} ${each.key} ${hosts.get(each.resource_id) ?? ""}`.toLowerCase().includes(words)),
  );
  const ask = (change) => {
    Object.assign(asked, change);
    stretch.restart();
    stretch.changed();
  };
  return h(
    "section",
    { "aria-labelledby": "resources" },
    h("h2", { id: "resources" }, "Resources"),
    h(
      "form",
      { class: "filters", onsubmit: (event) => event.preventDefault() },
      h("label", {}, "State", h("select", { name: "resource-state", onchange: (event) => ask({ state: event.target.value }) }, [["", "all"], ...Object.entries(WORDS)].map(([value, label]) => h("option", { value }, label)))),
      h("label", {}, "Id, host, code or key", h("input", { type: "search", name: "resource-words", oninput: (event) => ask({ words: event.target.value.trim() }) })),
      h("span", { class: "soft small" }, found.length === all.length ? plural(all.length, "resource") : `${count(found.length)} of ${plural(all.length, "resource")}`),
    ),
    table(
      [
        { label: "Resource", value: (each) => h("code", {}, each.resource_id) },
        { label: "State", value: (each) => h("span", { class: `tag ${TONES[each.state] ?? ""}` }, WORDS[each.state] ?? each.state) },
        { label: "Host", value: (each) => hosts.get(each.resource_id) ?? "" },
        { label: "Size", number: true, value: (each) => (each.state === "completed" ? bytes(each.size) : "") },
        { label: "Attempts", number: true, value: (each) => (each.attempts ? count(each.attempts) : "") },
        { label: "What came of it", class: "wide", value: outcome },
        { label: "Changed", class: "when", value: (each) => since(each.updated_ms) },
      ],
      stretch.of(found),
      { label: "resources", key: (each) => each.resource_id, empty: all.length ? "No resource is like that." : "Nothing was told of its resources yet." },
    ),
    stretch.button(found),
  );
}

function outcome(each) {
  if (each.state === "completed") return h("span", { class: "soft clip", title: each.key }, each.mime || each.key);
  return each.error_code ? h("span", {}, h("code", {}, each.error_code), " ", each.error_message) : "";
}
