/** Rounded numbers; the exact value stays in the element. */

import { el } from "./dom.js";

const whole = new Intl.NumberFormat("en");

/** 2189 → "2,189" */
export function count(value) {
  return whole.format(value);
}

/** A share of 1 with four places, or "<0.0001". */
export function share(value) {
  return exact(value, value > 0 && value < 0.00005 ? "<0.0001" : value.toFixed(4));
}

/** A score: three places, or an exponent for large ones. */
export function score(value) {
  return exact(value, Math.abs(value) < 1e5 ? value.toFixed(3) : value.toExponential(3));
}

/** A metric: three places. */
export function metric(value) {
  return exact(value, value.toFixed(3));
}

/** A rank: an integer, or a half if answers tie. */
export function rank(value) {
  return exact(value, Number.isInteger(value) ? count(value) : value.toFixed(1));
}

export function seconds(value) {
  if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 90) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  return `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

function exact(value, text) {
  return el("data", { value: String(value), title: String(value) }, text);
}
