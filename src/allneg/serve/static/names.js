/** Names of entities and relations. A name may have thousands of characters. */

import { address } from "./address.js";
import { el } from "./dom.js";

const LONGEST = 80; // characters of a name that the page shows

/** A name, without its middle if it is long. */
export function short(name) {
  return name.length > LONGEST ? `${name.slice(0, 50)}…${name.slice(-20)}` : name;
}

/** A link whose text is a name. */
export function nameLink(name, href) {
  return el("a", { href, title: name.length > LONGEST && name }, short(name));
}

/** A link to the page of an entity. */
export function entityLink(model, name) {
  return nameLink(name, address({ view: "entity", model, name }));
}
