/** A place on the page that waits for the service: slow, wrong or empty, it says so. */

import { address, state } from "./address.js";
import { el, put } from "./dom.js";

const PATIENCE = 1500; // milliseconds until a wait is called slow

/**
 * Fill `place` with what `load` promises. What it shows stays, dimmed, until then, so that
 * nothing jumps. A wait that was given up for another one leaves no trace.
 * @param {HTMLElement} place
 * @param {AbortSignal} signal
 * @param {() => Promise<any>} load
 * @param {(said: any) => any} show gives the children of the place
 * @param {() => any} again what "Try again" does
 * @returns {Promise<boolean>} whether it came to show
 */
export async function fillFrom(place, signal, load, show, again = anew) {
  place.setAttribute("aria-busy", "true");
  place.classList.remove("slow");
  const slow = setTimeout(() => place.classList.add("slow"), PATIENCE);
  const rest = () => {
    clearTimeout(slow);
    place.removeAttribute("aria-busy");
    place.classList.remove("slow");
  };
  signal.addEventListener("abort", rest); // before another wait begins, if one does
  try {
    const said = await load();
    if (signal.aborted) return false;
    put(place, show(said));
    return true;
  } catch (error) {
    if (signal.aborted) return false;
    put(place, trouble(error, again));
    return false;
  } finally {
    if (!signal.aborted) rest();
  }
}

/** Update the whole view. */
const anew = () => dispatchEvent(new Event("popstate"));

/** Grey lines of the height that is to come. */
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

/** What went wrong, and what to do; `field` of the state is wrong, where that is known. */
export function trouble(error, again, field) {
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
function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.?!]$/.test(text) ? "" : ".");
}

const TITLES = {
  unknown_entity: "No such entity",
  unknown_relation: "No such relation",
  unknown_model: "No such model",
  bad_parameter: "This cannot be asked",
  busy: "The service is busy",
  gone: "The service is gone",
};
const AGAIN = ["busy", "gone", "broken"];

/** A link to the same view, with the name that was not known put right. */
function close(error, name, field) {
  const here = state();
  const fields = FIELDS[error.code] ?? ["name"];
  const named = fields.find((each) => here[each] && error.message.includes(`'${here[each]}'`));
  const wrong = field ?? named ?? fields[0];
  return el("a", { class: "chip", href: address({ ...here, [wrong]: name }) }, name);
}

const FIELDS = {
  unknown_entity: ["name", "head", "tail"],
  unknown_relation: ["relation"],
  unknown_model: ["model", "other"],
};
