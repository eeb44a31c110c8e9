/** Reasons for an answer: similar entities, facts and paths between the two. */

import { unknownPart } from "./address.js";
import { badge } from "./answers.js";
import { el, put } from "./dom.js";
import { entityLink, short } from "./names.js";
import { count, metric } from "./numbers.js";
import { fillFrom, skeleton } from "./loading.js";
import { get } from "./service.js";

const FIRST = 4; // rows of a block before "more"

/** Fill a container with the reasons for an answer. */
export function why(container, here, answer, signal) {
  const part = unknownPart(here);
  const { model, head, relation, tail } = { ...here, [part]: answer };
  const side = part === "head" ? "head" : "tail";
  put(container, el("div", { class: "why" }, skeleton(4)));
  const load = () => get("/v1/explain", { model, head, relation, tail, side }, signal);
  const known = side === "head" ? tail : head;
  const show = (data) =>
    el("div", { class: "why" }, like(data, model, known), facts(data, model), paths(data, model));
  return fillFrom(container, signal, load, show, () => why(container, here, answer, signal));
}

function like({ neighbours }, model, known) {
  const rows = neighbours.map(({ entity, similarity, fact }) =>
    el(
      "li",
      {},
      entityLink(model, entity),
      " ",
      el("span", { class: "muted" }, "similarity "),
      metric(similarity),
      el("br"),
      triple(fact, model),
    ),
  );
  return block(
    `Similar to ${short(known)}, with the same answer`,
    rows,
    "No other entity has this answer in train.",
  );
}

function facts({ facts: known }, model) {
  const rows = known.map(([head, relation, tail, split]) =>
    el("li", {}, triple([head, relation, tail], model), " ", badge(split)),
  );
  return block("Other facts between the two", rows, "There are no other facts between them.");
}

function paths({ paths: found }, model) {
  const rows = found.map(({ relations, count: times, example }) =>
    el(
      "li",
      {},
      el(
        "span",
        { class: "path" },
        relations.map((name, i) => [i > 0 && " → ", el("code", {}, short(name))]),
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
    "There are no paths of two steps.",
    "^ marks a relation that is followed from tail to head",
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
    entityLink(model, head),
    " ",
    el("span", { class: "muted" }, short(relation)),
    " ",
    entityLink(model, tail),
  );
}
