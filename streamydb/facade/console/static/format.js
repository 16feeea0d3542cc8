// Numbers and times for people.

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const PREVIEW = 160;
const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

export function count(number) {
  if (number === null || number === undefined) return "–";
  if (number >= 100_000) return SHORT.format(number);
  return number < 10 && number % 1 ? number.toFixed(1) : WHOLE.format(number);
}

export const exact = (number) => WHOLE.format(number);

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms === 0) return "0 ms";
  if (ms < 10) return `${ms < 1 ? ms.toFixed(2) : ms.toFixed(1)} ms`;
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 48 * 3_600_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} days`;
}

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

export function moment(ms) {
  const time = new Date(ms);
  if (Number.isNaN(time.getTime())) return `${ms} ms`;
  return time.toISOString().replace("T", " ").replace("Z", " UTC");
}

/** A time to come, or just past, and how far it is from now. */
export function distant(ms) {
  const left = ms - Date.now();
  return `${moment(ms)} (${left < 0 ? `${duration(-left)} ago` : `in ${duration(left)}`})`;
}

/** The beginning of a text. */
export const preview = (text) => (text.length > PREVIEW ? text.slice(0, PREVIEW) + " …" : text);
