// Write numbers, times and sizes for people.

const counted = new Intl.NumberFormat("en");
const percent = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 0 });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });
const hour = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: "UTC" });
const MINUS = "\u2212";

export const count = (n) => counted.format(n);
export const share = (weight) => percent.format(weight);
export const several = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** Write a score; those of popular items are counts. */
export const score = (value) => (Number.isInteger(value) ? count(value) : value.toFixed(2).replace("-", MINUS));

/** Say which way a change goes, as far as its two decimals show. */
export const direction = (value) => (Math.abs(value) < 0.005 ? "none" : value < 0 ? "down" : "up");

/** Write a change with its sign. */
export const change = (value) => ({ none: "", down: MINUS, up: "+" })[direction(value)] + Math.abs(value).toFixed(2);

/** Write milliseconds, exact enough to mean something. */
export const milliseconds = (ms) => (ms < 10 ? `${ms.toFixed(1)} ms` : ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

/** Write a number of bytes. */
export function bytes(n) {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  let unit = 0;
  for (; n >= 1000 && unit < units.length - 1; unit++) n /= 1000;
  return `${unit && n < 100 ? n.toFixed(1) : count(Math.round(n))} ${units[unit]}`;
}

/** Write a span of seconds. */
export function span(seconds) {
  if (seconds < 90) return several(Math.round(seconds), "second");
  if (seconds < 5400) return several(Math.round(seconds / 60), "minute");
  if (seconds < 129600) return several(Math.round(seconds / 3600), "hour");
  return several(Math.round(seconds / 86400), "day");
}

/** Write a moment in two parts, the day and the time of day, in UTC as the API gives it. */
export function moment(iso) {
  const date = iso ? new Date(iso) : null;
  return date && !Number.isNaN(date.getTime()) ? [day.format(date), hour.format(date)] : [null, null];
}

/** Make a sentence of words that begin small. */
export const sentence = (words) => words.charAt(0).toUpperCase() + words.slice(1) + (/[.!?]$/.test(words) ? "" : ".");
