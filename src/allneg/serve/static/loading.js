/** Parts of the page that wait for the service: slow, failed or empty. */

import { address, state } from "./address.js";
import { el, put } from "./dom.js";
import { short } from "./names.js";

const SLOW_AFTER = 1500; // milliseconds until the wait is shown as slow

/**
 * Fill `container` with the result of `load`. The old content stays, dimmed, until then, so that
 * nothing jumps. An aborted wait changes nothing.
 * @param {HTMLElement} container
 * @param {AbortSignal} signal
 * @param {() => Promise<any>} load
 * @param {(data: any) => any} show returns the children of the container
 * @param {() => any} again what "Try again" does
 * @returns {Promise<boolean>} whether the result is shown
 */
export async function fillFrom(container, signal, load, show, again = reload) {
  container.setAttribute("aria-busy", "true");
  container.classList.remove("slow");
  const slow = setTimeout(() => container.classList.add("slow"), SLOW_AFTER);
  const rest = () => {
    clearTimeout(slow);
    container.removeAttribute("aria-busy");
    container.classList.remove("slow");
  };
  signal.addEventListener("abort", rest); // runs before the next wait begins
  try {
    const data = await load();
    if (signal.aborted) return false;
    put(container, show(data));
    return true;
  } catch (error) {
    if (signal.aborted) return false;
    put(container, errorMessage(error, again));
    return false;
  } finally {
    if (!signal.aborted) rest();
  }
}

/** Update the whole view. */
const reload = () => dispatchEvent(new Event("popstate"));

/** Grey lines of the expected height. */
export function skeleton(lines) {
  const line = () => el("div", { class: "bone" });
  return el(
    "div",
    { class: "skeleton", "aria-hidden": "true" },
    Array.from({ length: lines }, line),
  );
}

/** A message where there is nothing to show. */
export function empty(title, ...more) {
  return el("div", { class: "empty" }, el("p", { class: "empty-title" }, title), ...more);
}

/** An error and what to do; `field` is the wrong field of the state, if known. */
export function errorMessage(error, again, field) {
  if (!error.code) console.error(error);
  const known = TITLES[error.code];
  const near = (error.near ?? []).map((name) => el("li", {}, close(error, name, field)));
  return el(
    "div",
    { class: "trouble", role: "alert" },
    el("p", { class: "empty-title" }, known ?? "Something went wrong"),
    el("p", {}, sentence(error.message)),
    near.length > 0 && el("p", {}, "Did you mean"),
    near.length > 0 && el("ul", { class: "chips", "aria-label": "Close names" }, near),
    AGAIN.includes(error.code) &&
      el("button", { type: "button", class: "button", onclick: again }, "Try again"),
  );
}

/** A message of the service as a sentence. */
export function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.?!]$/.test(text) ? "" : ".");
}

const TITLES = {
  unknown_entity: "No such entity",
  unknown_relation: "No such relation",
  unknown_model: "No such model",
  bad_parameter: "This cannot be answered",
  busy: "The service is busy",
  gone: "The service does not respond",
};
const AGAIN = ["busy", "gone", "broken"];

/** A link to the same view with a close name instead of the unknown one. */
function close(error, name, field) {
  const here = state();
  const fields = FIELDS[error.code] ?? ["name"];
  const named = fields.find((item) => here[item] && error.message.includes(`'${here[item]}'`));
  const wrong = field ?? named ?? fields[0];
  return el("a", { class: "chip", href: address({ ...here, [wrong]: name }) }, short(name));
}

const FIELDS = {
  unknown_entity: ["name", "head", "tail"],
  unknown_relation: ["relation"],
  unknown_model: ["model", "other"],
};
