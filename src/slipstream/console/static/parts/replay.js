// Sends dead letters of jobs back, or discards them: first asks the service what it would do, then the person.

import { post } from "../lib/api.js";
import { plural } from "../lib/format.js";
import { ask } from "./ask.js";
import { act, toast } from "./notice.js";

/** `select` as the service takes it; `what` names them: "with DOWNLOAD_TIMEOUT". */
export async function deal(event, { select, what, discard = false, done = () => {} }) {
  const button = event.currentTarget;
  const all = !Object.values(select).some(Boolean);
  const request = { select, all, discard };
  let would = null;
  const isKnown = await act({ currentTarget: button }, async () => (would = await post("/v2/job-replays", { ...request, dry_run: true })));
  if (!isKnown) return;
  const number = would.letters.length;
  if (!number) {
    toast("there is none any more: they were dealt with, or are stored by now");
    return done();
  }
  let dealt = null;
  const run = async () => (dealt = await post("/v2/job-replays", { ...request, dry_run: false }));
  const given = await ask({ ...(discard ? discarding(number, what) : replaying(number, what, would)), run });
  if (!given) return;
  toast(`${plural(dealt.letters.length, "task")} ${discard ? "discarded" : "published again"}`);
  done();
}

function replaying(number, what, would) {
  const jobs = new Set(would.letters.map((letter) => letter.job_id)).size;
  return {
    title: `Replay ${plural(number, "dead letter")} ${what}?`,
    text: [
      `${plural(number, "task")} of ${plural(jobs, "job")} ${number === 1 ? "is" : "are"} published again and tried from the first attempt on. What fails again comes back here.`,
      would.skipped ? `${plural(would.skipped, "letter")} besides ${would.skipped === 1 ? "is" : "are"} left out: older ones of the same resources, or such as cannot be read.` : "",
    ].filter(Boolean),
    action: `Replay ${number}`,
  };
}

function discarding(number, what) {
  return {
    title: `Discard ${plural(number, "dead letter")} ${what}?`,
    text: "Nobody is shown them any more, and they cannot be replayed from here. Their resources stay failed.",
    action: `Discard ${number}`,
    typed: `discard ${number}`,
  };
}
