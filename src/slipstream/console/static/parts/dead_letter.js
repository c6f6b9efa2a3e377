// A dead letter with its whole story: where it came from, what happened there, what it carries.

import { path } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { count, plural } from "../lib/format.js";
import { errorsOf } from "../lib/causes.js";
import { to } from "../lib/router.js";
import { attemptRows } from "./attempts.js";
import { body } from "./body.js";
import { copyButton, curl } from "./copy.js";
import { facts, keyOf, travels, when } from "./message.js";

const REASONS = {
  max_attempts: (attempts) => `${attempts === 1 ? "its only attempt" : `all ${count(attempts)} attempts`} failed`,
  rejected: (attempts) => `at attempt ${count(attempts)} its consumer said that no further would help`,
  rejected_by_operator: (attempts) => `an operator rejected it${attempts ? ` after ${plural(attempts, "attempt")}` : " before its first attempt"}`,
  deadline_exceeded: (attempts) => `its deadline passed while it was waiting${attempts ? `, after ${plural(attempts, "attempt")}` : ""}`,
};

/** `onRedrive` is what the button does; without it there is none. */
export function deadLetter(letter, onRedrive) {
  const { dlq, ...envelope } = letter.envelope;
  const came = `${dlq.original_topic}/${dlq.original_partition}/${dlq.original_offset}`;
  return [
    h(
      "p",
      {},
      "Group ",
      h("a", { href: to("groups", dlq.original_topic, dlq.group) }, dlq.group),
      ` could not finish it: ${REASONS[dlq.reason]?.(dlq.attempts) ?? dlq.reason}. `,
      letter.redriven ? h("span", { class: "tag good" }, "sent back") : h("span", { class: "tag bad" }, "not sent back"),
    ),
    facts([
      ["Dead letter", h("code", {}, `${letter.topic}/${letter.partition}/${letter.offset}`)],
      ["Came from", h("a", { href: to("topics", dlq.original_topic, dlq.original_partition, dlq.original_offset) }, came)],
      ["Died", when(letter.timestamp_ms)],
      ["Key", keyOf(letter)],
    ]),
    letter.history?.length ? [h("h3", {}, "Attempts"), attemptRows(letter.history, dlq.attempts)] : errorList(errorsOf(letter), dlq.attempts),
    travels({ ...letter, envelope }),
    body(letter.topic, letter),
    h(
      "div",
      { class: "buttons" },
      onRedrive && !letter.redriven ? h("button", { type: "button", class: "primary", onclick: onRedrive }, "Redrive this one") : null,
      copyButton(() => curl(path("v2", "dead-letters", letter.topic, letter.partition, letter.offset)), "Copy as curl"),
    ),
  ];
}

/** For dead letters of older versions, which have no record of each attempt, and for those that nobody attempted. */
function errorList(errors, attempts) {
  return [
    h("h3", {}, errors.length > 1 ? "Errors, oldest first" : "Error"),
    errors.length ? h("ol", { class: "errors" }, errors.map((each) => h("li", {}, each))) : h("p", { class: "soft" }, "It gave none."),
    errors.length < attempts && errors.length > 1 ? h("p", { class: "soft small" }, `The last ${count(errors.length)} are kept.`) : null,
  ];
}
