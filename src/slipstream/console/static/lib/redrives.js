// Sending dead letters back: counted first, then done, then watched. A redrive is of one topic, so what is chosen in
// several topics is one redrive for each.

import { get, path, post } from "./api.js";

const LOOK_MS = 150;
const PLACES_MAX = 10_000;

/**
 * What is chosen, as one request for each topic.
 * `filter` is {group, error, since, until}, `topics` those it is about; `letters` are chosen one by one instead.
 */
export function requestsOf({ letters, filter, topics }) {
  if (!letters) return topics.map((topic) => ({ topic, ...filter }));
  const places = new Map();
  for (const { topic, partition, offset } of letters.filter((each) => !each.redriven)) places.set(topic, [...(places.get(topic) ?? []), { partition, offset }]);
  return [...places].map(([topic, messages]) => ({ topic, messages: messages.slice(0, PLACES_MAX) }));
}

/** How many would be sent, by topic: [{request, number, stranded}]; `stranded` failed for a group that is gone. */
export async function counted(requests, signal) {
  const counts = await Promise.all(
    requests.map(async (request) => {
      const done = await ended(await post("/v2/redrives", { ...request, dry_run: true }, { signal }), signal);
      return { request, number: done.redriven, stranded: done.without_group };
    }),
  );
  return counts.filter(({ number, stranded }) => number || stranded);
}

async function ended(status, signal) {
  while (status.state === "running") {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    status = await get(path("v2", "redrives", status.id), { signal });
  }
  if (status.state === "failed") throw new Error(status.error);
  return status;
}

// The server does not say how many a redrive will send; what was counted before it was started here is remembered.
const expected = new Map();

export async function start(counts, { rate, to, allGroups }) {
  const started = [];
  for (const { request, number, stranded } of counts) {
    if (!number && !allGroups && !to) continue;
    const status = await post("/v2/redrives", { ...request, ...(rate ? { rate } : {}), ...(to ? { to } : {}), ...(allGroups ? { all_groups: true } : {}) });
    expected.set(status.id, number + (allGroups || to ? stranded : 0));
    started.push(status);
  }
  return started;
}

export const expectedOf = (status) => expected.get(status.id) ?? null;
