/** Elements from values. A string becomes text, never markup. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * `el("a", { href, class: "chip", onclick: f }, "France", el("b", {}, "!"))`
 * @param {string} tag
 * @param {Record<string, any>} attributes null, undefined and false are left out
 * @param {...any} children elements, strings, numbers, arrays of them; null is left out
 * @returns {any}
 */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG elements. @returns {any} */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Replace the children of an element; a new control like the old one keeps the focus. */
export function put(element, ...children) {
  const old = element.contains(document.activeElement) ? document.activeElement : null;
  element.replaceChildren(...nodes(children));
  if (!old || old === document.activeElement) return;
  const same = old.isConnected ? old : [...element.querySelectorAll(old.tagName)].find(isLike(old));
  if (same) same.focus({ preventScroll: true });
  else document.querySelector("h1")?.focus();
}

/** Controls are alike if they differ only in numbers, as "Show 25" and "Show 50" do. */
function isLike(old) {
  const words = (item) => (item.ariaLabel ?? item.textContent).replace(/\d/g, "");
  return (item) => item.className === old.className && words(item) === words(old);
}

/** Announce a text to screen readers. */
export function announce(text) {
  const status = document.getElementById("status");
  if (status) status.textContent = text;
}

let count = 0;

/** An id that no other element has. */
export function uniqueId(word) {
  count += 1;
  return `${word}-${count}`;
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}
