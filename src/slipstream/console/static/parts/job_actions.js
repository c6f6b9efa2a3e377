// Buttons that hold a job, end it, or publish the tasks again that it lacks.

import { path, post } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { count, plural } from "../lib/format.js";
import { ask } from "./ask.js";
import { ENDED } from "./job_progress.js";
import { act, toast } from "./notice.js";

export function jobActions(job, again) {
  const at = (action) => path("v2", "jobs", job.job_id, action);
  const left = job.resources_total - job.resources_completed - job.resources_failed;
  const button = (label, onclick, tone = "") => h("button", { type: "button", class: tone, onclick }, label);
  const hold = (action) => async (event) => (await act(event, () => post(at(action), {}), () => `the job was ${action}d`)) && again();
  const cancel = async () => {
    const given = await ask({
      title: `Cancel ${job.job_id}?`,
      text: [`${plural(left, "resource")} of ${count(job.resources_total)} will not be downloaded; downloads under way are stopped. What is stored stays.`],
      action: "Cancel the job",
      run: () => post(at("cancel"), {}),
    });
    if (given) again();
  };
  const requeue = async (event) => {
    let done = null;
    if (!(await act(event, async () => (done = await post(at("requeue"), {}))))) return;
    toast(`${plural(done.tasks, "task")} published again`);
    again();
  };
  const buttons = [
    job.lost_tasks ? button(`Requeue ${plural(job.lost_tasks, "lost task")}`, requeue, "primary") : null,
    job.state === "cancelled" && left ? button("Requeue", requeue) : null,
    job.state === "paused" ? button("Resume", hold("resume"), "primary") : null,
    ENDED.has(job.state) || job.state === "paused" ? null : button("Pause", hold("pause")),
    ENDED.has(job.state) ? null : button("Cancel…", cancel, "danger"),
  ].filter(Boolean);
  if (!buttons.length) return null;
  return [
    job.lost_tasks ? h("p", { class: "bad" }, `${plural(job.lost_tasks, "task")} removed by retention before ${job.lost_tasks === 1 ? "it was" : "they were"} done.`) : null,
    h("div", { class: "buttons" }, buttons),
  ];
}
