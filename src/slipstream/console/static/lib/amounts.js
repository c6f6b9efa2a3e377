// Durations, sizes and times as people type them, the same as on the command line: `7d`, `64k`, `10m` ago.

/** What was typed makes no sense: it is said beside the field, and nothing was sent. */
export class Mistyped extends Error {
  code = "nothing was sent";
}

const SPANS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 7 * 86_400_000 };
const SIZES = { "": 1, b: 1, k: 2 ** 10, kb: 2 ** 10, kib: 2 ** 10, m: 2 ** 20, mb: 2 ** 20, mib: 2 ** 20, g: 2 ** 30, gb: 2 ** 30, gib: 2 ** 30 };
const NUMBER = /^([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)$/i;

/** Milliseconds of `500ms`, `10s`, `5m`, `2h`, `7d`; 0 needs no unit. */
export function parseSpan(text) {
  const [, number, unit] = NUMBER.exec(text.trim()) ?? [];
  const factor = SPANS[unit?.toLowerCase()];
  if (number === undefined || (factor === undefined && Number(number) !== 0)) throw new Mistyped(`“${text}” is no duration: type 500ms, 10s, 5m, 2h or 7d`);
  return Math.round(Number(number) * (factor ?? 1));
}

/** Bytes of `1000`, `64k`, `10m` or `2g`. */
export function parseSize(text) {
  const [, number, unit] = NUMBER.exec(text.trim()) ?? [];
  const factor = SIZES[unit?.toLowerCase()];
  if (number === undefined || factor === undefined) throw new Mistyped(`“${text}” is no size: type 1000, 64k, 10m or 2g`);
  return Math.round(Number(number) * factor);
}

/** A number without a sign or a fraction. */
export function parseCount(text, what) {
  if (!/^[0-9]{1,15}$/.test(text.trim())) throw new Mistyped(`${what} is a number, 0 or more; “${text}” is none`);
  return Number(text.trim());
}

/** A time as the server takes it, of `15m` (ago), `2026-11-18 02:24` (UTC, as everything here is shown) or RFC 3339. */
export function parseTime(text, now = Date.now()) {
  const [, number, unit] = NUMBER.exec(text.trim()) ?? [];
  if (number !== undefined && SPANS[unit.toLowerCase()]) return new Date(now - Number(number) * SPANS[unit.toLowerCase()]).toISOString();
  const [, day, clock = "00:00", zone = "Z"] = /^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)\s*(UTC|Z|[+-]\d\d:\d\d)?)?$/i.exec(text.trim()) ?? [];
  const ms = Date.parse(`${day}T${clock}${zone.toUpperCase() === "UTC" ? "Z" : zone}`);
  if (Number.isNaN(ms)) throw new Mistyped(`“${text}” is no time: type 2026-11-18 02:24 (UTC), or how long ago: 15m, 2h, 1d`);
  return new Date(ms).toISOString();
}

/** How a duration would be typed: the largest unit that needs no fraction. */
export function typedSpan(ms) {
  if (!ms) return "0";
  const unit = ["d", "h", "m", "s", "ms"].find((each) => ms % SPANS[each] === 0);
  return `${ms / SPANS[unit]}${unit}`;
}

export function typedSize(bytes) {
  const unit = bytes ? ["g", "m", "k"].find((each) => bytes % SIZES[each] === 0) : undefined;
  return unit ? `${bytes / SIZES[unit]}${unit}` : String(bytes);
}
