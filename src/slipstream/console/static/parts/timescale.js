// Where on an axis a moment is. True to time, or evened out: then what is short can be seen beside what is long,
// as each piece between two moments gets a width that grows with its length much more slowly than the length does.

/** `place(ms)` is from 0 to 1; `ticks` is [{at, ms}] with at most about `most` of them. */
export function timescale(moments, { isEven = false, most = 7 } = {}) {
  const sorted = [...new Set(moments)].sort((one, other) => one - other);
  const [from, to] = [sorted[0], Math.max(sorted.at(-1), sorted[0] + 1)];
  return isEven ? evened(sorted, from, to, most) : linear(from, to, most);
}

/** Whether the work would be slivers beside the waiting: half of the pieces of work are under this share of all. */
const SLIVER = 0.006;

export function wantsEven(durations, whole) {
  const sorted = durations.filter((ms) => ms > 0).sort((one, other) => one - other);
  return sorted.length > 0 && sorted[Math.floor(sorted.length / 2)] / whole < SLIVER;
}

function linear(from, to, most) {
  const whole = to - from;
  const place = (ms) => clamp((ms - from) / whole);
  const step = niceStep(whole / most);
  const ticks = [];
  for (let ms = 0; ms <= whole * 1.0001; ms += step) ticks.push({ at: place(from + ms), ms });
  return { from, to, place, ticks, isEven: false };
}

function evened(moments, from, to, most) {
  const weights = moments.slice(1).map((moment, index) => Math.log2(2 + (moment - moments[index])));
  const whole = weights.reduce((sum, weight) => sum + weight, 0) || 1;
  const starts = [0];
  for (const weight of weights) starts.push(starts.at(-1) + weight / whole);
  const place = (ms) => {
    if (ms <= from) return 0;
    if (ms >= to) return 1;
    const after = moments.findIndex((moment) => moment > ms);
    const [begin, end] = [moments[after - 1], moments[after]];
    return starts[after - 1] + ((ms - begin) / (end - begin)) * (starts[after] - starts[after - 1]);
  };
  // At moments of the story, as round numbers would stand anywhere; with room between them to be read.
  const ticks = [];
  for (const moment of moments) {
    const at = place(moment);
    if (!ticks.length || at - ticks.at(-1).at >= 1 / most) ticks.push({ at, ms: moment - from });
  }
  return { from, to, place, ticks, isEven: true };
}

const clamp = (share) => Math.max(0, Math.min(1, share));

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 7200e3, 21600e3, 43200e3];
const DAY_MS = 86_400_000;

function niceStep(least) {
  return STEPS.find((step) => step >= least) ?? Math.ceil(least / DAY_MS) * DAY_MS;
}
