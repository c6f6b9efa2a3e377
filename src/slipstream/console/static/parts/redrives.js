// Redrives: the dialog that counts and starts them, and the list that shows how far they are.

import { path, remove } from "../lib/api.js";
import { Mistyped } from "../lib/amounts.js";
import { h } from "../lib/dom.js";
import { count, plural, span } from "../lib/format.js";
import { counted, expectedOf, requestsOf, start } from "../lib/redrives.js";
import { to as link } from "../lib/router.js";
import { ask } from "./ask.js";
import { bar } from "./bar.js";
import { act, toast } from "./notice.js";
import { since } from "./since.js";
import { table } from "./table.js";

const origin = (topic) => topic.replace(/^dlq\./, "");

/** Counts what is chosen, asks, and sends it back. Resolves with the redrives that were started; none: []. */
export async function redrive(chosen, what) {
  const counts = await counted(requestsOf(chosen));
  const sum = (name) => counts.reduce((total, each) => total + each[name], 0);
  const [toGroup, stranded] = [sum("number"), sum("stranded")];
  const total = toGroup + stranded;
  if (!total) {
    toast("none of them is left to be sent back: each is sent at most once");
    return [];
  }
  let started = [];
  const sent = ({ groups, to }) => (groups === "all" || to.trim() ? total : toGroup);
  const each = counts.map(({ request, number, stranded: lost }) => `${count(number + lost)} of ${origin(request.topic)}`);
  await ask({
    title: `Redrive ${plural(total, "dead letter")}`,
    text: [
      `${what} ${plural(total, "message")}: ${each.join(", ")}.`,
      "Each dead letter is sent back once, as a new message. Messages that were sent stay sent; you can cancel the rest.",
    ],
    action: `Redrive ${count(total)}`,
    fields: [
      { name: "groups", label: "Delivered to", options: RECIPIENTS, value: "failed", when: ({ to }) => !to.trim() },
      { name: "rate", label: "Messages a second", hint: "empty is as fast as it goes", inputmode: "decimal", placeholder: "as fast as it goes", autocomplete: "off" },
      { name: "to", label: "To another topic", hint: "where every group gets them", placeholder: "where each came from", autocomplete: "off" },
    ],
    note: (values) => consequence(values, sent(values), stranded),
    run: async ({ rate, to, groups }) => {
      if (rate.trim() && !(Number(rate) > 0)) throw new Mistyped(`“${rate}” is no rate: type how many messages a second, such as 5`);
      const number = sent({ groups, to });
      if (!number) throw new Mistyped("the group they failed for no longer exists: choose every group, or another topic");
      started = await start(counts, { rate: Number(rate), to: to.trim(), allGroups: groups === "all" });
      toast(`${plural(number, "dead letter")} ${number === 1 ? "is" : "are"} being sent back`);
    },
  });
  return started;
}

const RECIPIENTS = [
  { value: "failed", label: "only the group that each failed for" },
  { value: "all", label: "every group of the topic, also those that had finished it" },
];

function consequence({ rate, to, groups }, sent, stranded) {
  const said = [];
  if (to.trim()) said.push(`They go to every group of ${to.trim()}.`);
  else if (groups === "all") said.push("Groups that had finished the original get it a second time.");
  else if (stranded) said.push(`${plural(stranded, "dead letter")} stay here: the group they failed for no longer exists.`);
  if (Number(rate) > 0) said.push(`It takes about ${span((sent / Number(rate)) * 1000)}.`);
  return said.join(" ");
}

const STATES = { running: ["", "running"], done: ["good", "done"], cancelled: ["warn", "cancelled"], failed: ["bad", "failed"] };

/** Those that only counted are not shown. */
export function redriveList(redrives, changed) {
  const shown = redrives.filter((each) => !each.dry_run).toSorted((one, other) => other.started_ms - one.started_ms);
  return table(
    [
      { label: "Started", class: "nowrap", value: (each) => since(each.started_ms) },
      { label: "Dead letters of", class: "name", value: (each) => h("a", { class: "plain-link", href: link("topics", origin(each.topic)) }, origin(each.topic)) },
      { label: "To", class: "name", value: (each) => recipients(each) },
      { label: "Progress", class: "bar-cell", value: progress },
      { label: "Sent", number: true, value: (each) => [count(each.redriven), expectedOf(each) ? h("span", { class: "soft" }, ` of ${count(expectedOf(each))}`) : ""] },
      { label: "State", value: (each) => [h("span", { class: `tag ${STATES[each.state][0]}` }, STATES[each.state][1]), each.error ? ` ${each.error}` : ""] },
      { label: "", value: (each) => (each.state === "running" ? cancelButton(each, changed) : "") },
    ],
    shown.slice(0, 10),
    { label: "redrives", key: (each) => each.id, empty: "None since the server started." },
  );
}

function recipients({ to, all_groups: all }) {
  if (to) return h("a", { class: "plain-link", href: link("topics", to) }, to);
  return h("span", { class: "soft" }, all ? "every group" : "the failed group");
}

function progress(status) {
  const whole = expectedOf(status) ?? (status.state === "running" ? null : Math.max(status.redriven, 1));
  const share = whole ? status.redriven / whole : 0;
  return bar([{ share, state: status.state === "failed" ? "failed" : status.state === "running" ? "flight" : "done", title: `${count(status.redriven)} sent back` }], whole ? `${Math.round(share * 100)} percent sent back` : "running");
}

const cancelButton = (status, changed) =>
  h("button", { type: "button", onclick: (event) => act(event, () => remove(path("v2", "redrives", status.id)), (now) => `cancelled: ${count(now.redriven)} were sent back and stay so`).then(changed) }, "Cancel");
