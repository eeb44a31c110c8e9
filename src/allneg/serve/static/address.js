/** The state of the page is in its address: every view is a link, and Back goes back.
 *
 * It is the part after #, which the browser keeps to itself, so the service serves one page only.
 */

/**
 * @typedef {Object} State
 * @property {string} [view] ask (when absent), entity, compare, quality, map
 * @property {string} [model] the run that is asked
 * @property {string} [other] the run it is compared with
 * @property {string} [head]
 * @property {string} [relation] of a question, or what colours the map
 * @property {string} [tail]
 * @property {string} [ask] the part that is asked for: head, relation, tail
 * @property {string} [k] answers shown
 * @property {string} [fresh] "1" leaves out known facts
 * @property {string} [why] the answer that is explained
 * @property {string} [name] the entity of the entity page
 * @property {string} [method] of the map
 * @property {string} [at] where the map looks: x,y,zoom
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
];
const changed = new EventTarget();

/** @returns {State} */
export function state() {
  const said = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(FIELDS.filter((f) => said.get(f)).map((f) => [f, said.get(f)]));
}

/** The address of a state. @param {State} wanted */
export function address(wanted) {
  const query = new URLSearchParams();
  for (const field of FIELDS) if (wanted[field]) query.set(field, wanted[field]);
  return `#${query}`;
}

/** Go to a state; `replace` leaves no step behind for the back button. @param {State} wanted */
export function go(wanted, { replace = false } = {}) {
  const to = address(wanted);
  if (to === location.hash) replace = true;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  changed.dispatchEvent(new Event("change"));
}

/** Note a state in the address of a view that shows it already. @param {State} wanted */
export function note(wanted) {
  history.replaceState(null, "", address(wanted));
}

/** Call `listener` whenever the state is another; links inside the page no longer load it anew. */
export function follow(listener) {
  changed.addEventListener("change", listener);
  addEventListener("popstate", listener);
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element && event.target.closest("a");
    const plain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey);
    const to = link && link.getAttribute("href");
    if (link && link.classList.contains("skip")) {
      event.preventDefault(); // the part after # is taken
      document.getElementById("page")?.focus();
      return;
    }
    if (!plain || event.defaultPrevented || !to || !to.startsWith("#")) return;
    event.preventDefault();
    if (to !== location.hash) history.pushState(null, "", to);
    changed.dispatchEvent(new Event("change"));
  });
}

/** The part of a question that is asked for: what the state says, or else what it leaves open. */
export function asked({ head, relation, tail, ask }) {
  if (ask === "head" || ask === "relation" || ask === "tail") return ask;
  if (head && tail && !relation) return "relation";
  return tail && !head ? "head" : "tail";
}
