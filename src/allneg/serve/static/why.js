/** Why an answer: entities like the one asked about, facts that join the two, paths of two steps. */

import { address, asked } from "./address.js";
import { badge } from "./answers.js";
import { el, put } from "./dom.js";
import { count, metric } from "./numbers.js";
import { fillFrom, skeleton } from "./places.js";
import { get } from "./service.js";

const FIRST = 4; // rows of a block that are shown at once

/** Fill a place with the reasons for an answer. */
export function why(place, here, answer, signal) {
  const part = asked(here);
  const { model, head, relation, tail } = { ...here, [part]: answer };
  const side = part === "head" ? "head" : "tail";
  put(place, el("div", { class: "why" }, skeleton(4)));
  const load = () => get("/v1/explain", { model, head, relation, tail, side }, signal);
  const known = side === "head" ? tail : head;
  const show = (said) =>
    el("div", { class: "why" }, like(said, model, known), facts(said, model), paths(said, model));
  return fillFrom(place, signal, load, show, () => why(place, here, answer, signal));
}

function like({ neighbours }, model, known) {
  const rows = neighbours.map(({ entity, similarity, fact }) =>
    el(
      "li",
      {},
      link(model, entity),
      " ",
      el("span", { class: "muted" }, "similarity "),
      metric(similarity),
      el("br"),
      triple(fact, model),
    ),
  );
  return block(
    `Like ${known}, with this answer`,
    rows,
    "None of the nearest entities has this answer.",
  );
}

function facts({ facts: known }, model) {
  const rows = known.map(([head, relation, tail, split]) =>
    el("li", {}, triple([head, relation, tail], model), " ", badge(split)),
  );
  return block("Known facts that join the two", rows, "No known fact joins them.");
}

function paths({ paths: found }, model) {
  const rows = found.map(({ relations, count: times, example }) =>
    el(
      "li",
      {},
      el(
        "span",
        { class: "path" },
        relations.map((name, i) => [i > 0 && " → ", el("code", {}, name)]),
      ),
      " ",
      el("span", { class: "muted" }, `× ${count(times)}`),
      el("br"),
      example.map((fact, i) => [i > 0 && "; ", triple(fact, model)]),
    ),
  );
  return block(
    "Paths of two steps",
    rows,
    "No path of two steps leads there.",
    "^ reads a relation backwards",
  );
}

function block(title, rows, none, note) {
  return el(
    "section",
    {},
    el("h3", {}, title),
    rows.length
      ? el("ul", { class: "plain" }, rows.slice(0, FIRST))
      : el("p", { class: "muted" }, none),
    rows.length > FIRST &&
      el(
        "details",
        {},
        el("summary", {}, `${rows.length - FIRST} more`),
        el("ul", { class: "plain" }, rows.slice(FIRST)),
      ),
    rows.length > 0 && note && el("p", { class: "muted" }, note),
  );
}

function triple([head, relation, tail], model) {
  return el(
    "span",
    { class: "triple" },
    link(model, head),
    " ",
    el("span", { class: "muted" }, relation),
    " ",
    link(model, tail),
  );
}

function link(model, name) {
  return el("a", { href: address({ view: "entity", model, name }) }, name);
}
