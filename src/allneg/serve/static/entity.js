/** The page of an entity: known facts by relation, neighbours in the model, a small graph. */

import { address, go, state } from "./address.js";
import { badge } from "./answers.js";
import { combobox } from "./combobox.js";
import { el, put } from "./dom.js";
import { neighbourhood } from "./graph.js";
import { count, metric } from "./numbers.js";
import { empty, fillFrom, skeleton } from "./places.js";
import { chip, entities } from "./question.js";
import { get } from "./service.js";

export function entity() {
  const choose = (name) => go({ view: "entity", model: state().model, name });
  const box = combobox({ label: "Entity", placeholder: "an entity", find: entities, choose });
  const form = el(
    "form",
    {
      class: "card question",
      "aria-label": "Choose an entity",
      onsubmit: (event) => (event.preventDefault(), choose(box.value)),
    },
    el(
      "div",
      { class: "question-row" },
      el("div", { class: "slots one" }, box.element),
      el("button", { class: "button strong" }, "Open"),
    ),
  );
  const heading = el("h1", { tabindex: "-1" }, "Entity");
  const place = el("div", { class: "entity" }, el("div", { class: "card" }, skeleton(14)));
  return {
    title: (here) => here.name ?? "Entity",
    element: el("div", { class: "view" }, form, heading, place),
    async update(here, signal) {
      box.value = here.name ?? "";
      heading.textContent = here.name ?? "Entity";
      if (!here.name) return put(place, empty("No entity yet", el("p", {}, "Type a name above.")));
      const load = () =>
        Promise.all([
          get("/v1/entity", { model: here.model, name: here.name }, signal),
          get("/v1/relations", { model: here.model, head: here.name }, signal),
        ]);
      return fillFrom(place, signal, load, ([said, { relations }]) => page(here, said, relations));
    },
  };
}

function page(here, said, relations) {
  const { model } = here;
  const typical = relations.filter((each) => each.typical).slice(0, 4);
  const asks = typical.map(({ name }) => chip({ head: said.name, relation: name }, model));
  const first = said.facts.find((each) => each.direction === "in");
  if (first) asks.push(chip({ relation: first.relation, tail: said.name }, model));
  asks.push(
    el(
      "a",
      { class: "chip", href: address({ view: "map", model, name: said.name }) },
      "Show on the map",
    ),
  );
  return [
    el(
      "div",
      { class: "entity-top" },
      el(
        "p",
        { class: "muted" },
        said.label && `${said.label} · `,
        `${count(said.degree)} known fact${said.degree === 1 ? "" : "s"}`,
      ),
      el(
        "ul",
        { class: "chips", "aria-label": "Ask about it" },
        asks.map((each) => el("li", {}, each)),
      ),
    ),
    el(
      "section",
      { class: "card graph" },
      el("h2", {}, "Around it"),
      neighbourhood(said.graph, said.name, model),
    ),
    el(
      "div",
      { class: "halves" },
      el("section", { class: "card" }, el("h2", {}, "Known facts"), facts(said, model)),
      el("section", { class: "card" }, el("h2", {}, "Near in the model"), near(said, model)),
    ),
  ];
}

function facts({ name, facts: groups }, model) {
  if (groups.length === 0) return el("p", { class: "muted" }, "No fact is known of it.");
  return groups.map(({ relation, direction, total, entities }) => {
    const question = direction === "out" ? { head: name, relation } : { relation, tail: name };
    const words =
      direction === "out"
        ? [relation, " …"]
        : ["… ", relation, " ", el("span", { class: "muted" }, "this")];
    return el(
      "div",
      { class: "facts" },
      el(
        "h3",
        {},
        el("a", { href: address({ model, ...question }) }, words),
        " ",
        el("span", { class: "muted" }, count(total)),
      ),
      el(
        "ul",
        { class: "flow" },
        entities.map((each) =>
          el("li", {}, link(model, each), each.split !== "train" && [" ", badge(each.split)]),
        ),
        total > entities.length &&
          el("li", { class: "muted" }, `and ${count(total - entities.length)} more`),
      ),
    );
  });
}

function near({ neighbours }, model) {
  const rows = neighbours.map((each) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "name" }, link(model, each)),
      el("td", { class: "number" }, metric(each.similarity)),
    ),
  );
  return el(
    "table",
    {},
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        el("th", { scope: "col" }, "entity"),
        el("th", { scope: "col", class: "number" }, "similarity"),
      ),
    ),
    el("tbody", {}, rows),
  );
}

function link(model, { name, label }) {
  return [
    el("a", { href: address({ view: "entity", model, name }) }, name),
    label && el("small", {}, label),
  ];
}
