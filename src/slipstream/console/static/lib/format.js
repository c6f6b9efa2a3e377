// Numbers, sizes and times as people read them. Units are always shown.

const NUMBERS = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => (value === null || value === undefined ? "–" : NUMBERS.format(value));

/** `1.2K` from ten thousand on. */
export const short = (value) => (value >= 10_000 ? SHORT.format(value) : NUMBERS.format(Math.round(value)));

export function rate(perSecond) {
  if (!perSecond) return "0/s";
  return `${perSecond < 10 ? NUMBERS.format(Math.round(perSecond * 10) / 10) : short(perSecond)}/s`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : NUMBERS.format(Math.round(value))} ${units[unit]}`;
}

/** `350 ms`, `4 s`, `12 min`, `3 h 5 min`, `2 days`. */
export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 0) return `in ${span(-ms)}`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1).replace(/\.0$/, "")} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 && hours < 10 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} days`;
}

export const ago = (ms, now = Date.now()) => (now - ms < 0 ? `in ${span(ms - now)}` : `${span(now - ms)} ago`);

/** `2026-11-18 02:24:23.120` in UTC: what logs and commands say. */
export function exact(ms) {
  return new Date(ms).toISOString().replace("T", " ").replace("Z", " UTC");
}

export const plural = (number, one, many = one + "s") => `${count(number)} ${number === 1 ? one : many}`;

/** Milliseconds of a time as the server writes it: a number, or ISO text. */
export const toMs = (time) => (typeof time === "number" ? time : Date.parse(time));
