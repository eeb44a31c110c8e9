/** The state of the page is the part of its address after #.
 *
 * Every view is a link, and the back button works. The service serves one page only.
 */

/**
 * @typedef {Object} State
 * @property {string} [view] ask (when absent), hops, entity, compare, quality, map, missing,
 *   suspicious
 * @property {string} [model] the run that answers
 * @property {string} [other] the run it is compared with
 * @property {string} [head]
 * @property {string} [relation] of the query, or the one that colours the map
 * @property {string} [tail]
 * @property {string} [ask] the part to be answered: head, relation, tail
 * @property {string} [k] answers shown
 * @property {string} [fresh] "1" leaves out known facts, or facts with a decision
 * @property {string} [why] the answer that is explained
 * @property {string} [name] the entity of the entity page
 * @property {string} [method] of the map
 * @property {string} [at] the section of the map: x,y,zoom
 * @property {string} [question] a multi-hop question
 * @property {string} [certain] "1" if known facts are certain in its answers
 * @property {string} [within] the entities of missing facts: seen, type
 * @property {string} [by] the relation that gives their type
 * @property {string} [of] their type
 * @property {string} [least] their lowest probability
 * @property {string} [start] the first head that is asked
 */

const FIELDS = [
  "view",
  "model",
  "other",
  "name",
  "head",
  "relation",
  "tail",
  "ask",
  "k",
  "fresh",
  "why",
  "method",
  "at",
  "question",
  "certain",
  "within",
  "by",
  "of",
  "least",
  "start",
];
const changed = new EventTarget();

/** @returns {State} */
export function state() {
  const hash = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(FIELDS.filter((f) => hash.get(f)).map((f) => [f, hash.get(f)]));
}

/** The address of a state. @param {State} wanted */
export function address(wanted) {
  const query = new URLSearchParams();
  for (const field of FIELDS) if (wanted[field]) query.set(field, wanted[field]);
  return `#${query}`;
}

/** Go to a state; `replace` adds no step to the history. @param {State} wanted */
export function go(wanted, { replace = false } = {}) {
  const to = address(wanted);
  if (to === location.hash) replace = true;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  changed.dispatchEvent(new Event("change"));
}

/** Write a state that is shown already to the address. @param {State} wanted */
export function note(wanted) {
  history.replaceState(null, "", address(wanted));
}

/** Call `listener` whenever the state changes. Links inside the page no longer reload it. */
export function follow(listener) {
  changed.addEventListener("change", listener);
  addEventListener("popstate", listener);
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element && event.target.closest("a");
    const plain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey);
    const to = link && link.getAttribute("href");
    if (link && link.classList.contains("skip")) {
      event.preventDefault(); // the part after # is the state
      document.getElementById("page")?.focus();
      return;
    }
    if (!plain || event.defaultPrevented || !to || !to.startsWith("#")) return;
    event.preventDefault();
    if (to !== location.hash) history.pushState(null, "", to);
    changed.dispatchEvent(new Event("change"));
  });
}

/** The part of a query to be answered: the one that the state names, or else a missing one. */
export function unknownPart({ head, relation, tail, ask }) {
  if (ask === "head" || ask === "relation" || ask === "tail") return ask;
  if (head && tail && !relation) return "relation";
  return tail && !head ? "head" : "tail";
}
