/** Names of entities and relations. A name may have thousands of characters. */

import { address } from "./address.js";
import { el } from "./dom.js";

const LONGEST = 80; // characters of a name that the page shows

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufefc]/;

/** A name, without its middle if it is long. Arabic or Hebrew does not turn the text around it. */
export function short(name) {
  const text = name.length > LONGEST ? `${name.slice(0, 50)}…${name.slice(-20)}` : name;
  return RIGHT_TO_LEFT.test(text) ? `\u2068${text}\u2069` : text;
}

/** A link whose text is a name, that breaks after "_" and "/" rather than inside a word. */
export function nameLink(name, href) {
  const words = short(name).split(/(?<=[_/])/);
  const text = words.map((word, i) => [i > 0 && el("wbr"), word]);
  return el("a", { href, title: name.length > LONGEST && name }, text);
}

/** A link to the page of an entity. */
export function entityLink(model, name) {
  return nameLink(name, address({ view: "entity", model, name }));
}
