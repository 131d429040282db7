// Moments are integers in the model's unit; ages are seconds.

const PER_SECOND = { s: 1, ms: 1e3, us: 1e6, ns: 1e9 };
const UNITS = [["year", 31557600], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
export const MARKS = [[1, "1 s"], [60, "1 min"], [3600, "1 h"], [86400, "1 day"], [7 * 86400, "1 week"], [30 * 86400, "1 month"], [365 * 86400, "1 year"], [3650 * 86400, "10 years"]];
export const FURTHEST = 90 * 86400;

export const perSecond = (unit) => PER_SECOND[unit];

export function words(seconds) {
  if (seconds < 1) return "no time";
  const [name, size] = UNITS.find(([, size]) => seconds >= size);
  const count = seconds / size < 10 && name !== "second" ? Math.round((10 * seconds) / size) / 10 : Math.round(seconds / size);
  return `${count} ${name}${count === 1 ? "" : "s"}`;
}

export const date = (moment, unit) => {
  const when = new Date((moment / PER_SECOND[unit]) * 1000);
  return Number.isNaN(when.getTime()) ? String(moment) : `${when.toISOString().slice(0, 16).replace("T", " ")} UTC`;
};

// The slider is logarithmic: from no time over a minute to 90 days, in steps that differ visibly.
export const STEPS = 100;
export const offset = (position) => (position === 0 ? 0 : Math.round(60 * (FURTHEST / 60) ** ((position - 1) / (STEPS - 1))));

// Beyond 2^53 numbers of this page are rounded: a microsecond more is never before the latest event.
export const later = (moment, seconds, unit) => moment + seconds * PER_SECOND[unit] + (unit === "ns" ? 1000 : 0);
