// Dead letters by what they died of: the same reason and the same last error, whatever numbers and ids are in it.

const SEPARATOR = " | "; // between the errors of the attempts, as the broker keeps them

const split = (text) => text.split(SEPARATOR).filter(Boolean);

/** The errors of all attempts that are still known, oldest first. */
export const errorsOf = (letter) => split(letter.envelope.dlq.last_error);

/** The newest of the errors that the broker has joined. */
export const lastOf = (text) => split(text).at(-1) ?? "";

export const lastError = (letter) => lastOf(letter.envelope.dlq.last_error);

/** `order 17 of 0b1c…: timed out after 30 s` and its sisters become one. */
const fold = (text) => text.replace(/\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b(?=[a-f]*\d)[0-9a-f]{8,}\b/gi, "#").replace(/\d+(?:[.,:]\d+)*/g, "#");

export const causeOf = (letter) => `${letter.envelope.dlq.reason}: ${fold(lastError(letter))}`;

/** One for each cause, the most frequent first: {cause, reason, error, letters, waiting, topics, groups, newestMs}. */
export function byCause(letters) {
  const found = Map.groupBy ? Map.groupBy(letters, causeOf) : grouped(letters);
  return [...found]
    .map(([cause, members]) => ({
      cause,
      reason: members[0].envelope.dlq.reason,
      error: fold(lastError(members[0])),
      letters: members,
      waiting: members.filter((each) => !each.redriven).length,
      topics: distinct(members, (each) => each.envelope.dlq.original_topic),
      groups: distinct(members, (each) => each.envelope.dlq.group),
      newestMs: Math.max(...members.map((each) => each.timestamp_ms)),
    }))
    .sort((one, other) => other.waiting - one.waiting || other.newestMs - one.newestMs);
}

function grouped(letters) {
  const found = new Map();
  for (const each of letters) found.set(causeOf(each), [...(found.get(causeOf(each)) ?? []), each]);
  return found;
}

const distinct = (rows, value) => [...new Set(rows.map(value))].sort();
