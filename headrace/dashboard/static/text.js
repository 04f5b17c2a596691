// Numbers and times as text; what is not known is a dash.

const NONE = "–";

export function number(value, digits = 1) {
  if (value === null || value === undefined) return NONE;
  return value.toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits});
}

export function percent(part, digits = 1) {
  return part === null || part === undefined ? NONE : `${number(100 * part, digits)} %`;
}

export function clock(at_s) {
  return new Date(1000 * at_s).toLocaleTimeString("en-GB");
}

export function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
