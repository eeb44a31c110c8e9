/** The page of an entity: known facts by relation, similar entities, a small graph. */

import { address, go, state } from "./address.js";
import { badge } from "./answers.js";
import { combobox } from "./combobox.js";
import { el, put } from "./dom.js";
import { neighbourhood } from "./graph.js";
import { entityLink, short } from "./names.js";
import { count, metric } from "./numbers.js";
import { empty, fillFrom, skeleton } from "./loading.js";
import { chip, entities } from "./query.js";
import { get } from "./service.js";

const MORE = 1000; // facts that a click adds at most

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
  const container = el("div", { class: "entity" }, el("div", { class: "card" }, skeleton(14)));
  return {
    title: (here) => short(here.name ?? "Entity"),
    element: el("div", { class: "view" }, form, heading, container),
    async update(here, signal) {
      box.value = here.name ?? "";
      heading.textContent = short(here.name ?? "Entity");
      if (!here.name) return put(container, empty("No entity chosen", el("p", {}, "Type a name above.")));
      const load = () =>
        Promise.all([
          get("/v1/entity", { model: here.model, name: here.name }, signal),
          get("/v1/relations", { model: here.model, head: here.name }, signal),
        ]);
      return fillFrom(container, signal, load, ([data, { relations }]) => page(here, data, relations));
    },
  };
}

function page(here, data, relations) {
  const { model } = here;
  const typical = relations.filter((item) => item.typical).slice(0, 4);
  const asks = typical.map(({ name }) => chip({ head: data.name, relation: name }, model));
  const first = data.facts.find((item) => item.direction === "in");
  if (first) asks.push(chip({ relation: first.relation, tail: data.name }, model));
  asks.push(
    el(
      "a",
      { class: "chip", href: address({ view: "map", model, name: data.name }) },
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
        data.label && `${data.label} · `,
        data.new && "new in this run · ",
        `${count(data.degree)} known fact${data.degree === 1 ? "" : "s"}`,
      ),
      el(
        "ul",
        { class: "chips", "aria-label": "Queries about it" },
        asks.map((item) => el("li", {}, item)),
      ),
    ),
    el(
      "section",
      { class: "card graph" },
      el("h2", {}, "Neighbourhood"),
      neighbourhood(data.graph, data.name, model),
    ),
    el(
      "div",
      { class: "halves" },
      el("section", { class: "card" }, el("h2", {}, "Known facts"), facts(data, model)),
      el("section", { class: "card" }, el("h2", {}, "Most similar entities"), near(data, model)),
    ),
  ];
}

function facts({ name, facts: groups }, model) {
  if (groups.length === 0) return el("p", { class: "muted" }, "There are no known facts.");
  return groups.map(({ relation, direction, total, entities }) => {
    const query = direction === "out" ? { head: name, relation } : { relation, tail: name };
    const words =
      direction === "out"
        ? [short(relation), " …"]
        : ["… ", short(relation), " ", el("span", { class: "muted" }, "this")];
    const list = el("ul", { class: "flow" });
    const wanted = { model, name, relation, direction };
    extend(list, { total, entities }, wanted);
    return el(
      "div",
      { class: "facts" },
      el(
        "h3",
        {},
        el("a", { href: address({ model, ...query }) }, words),
        " ",
        el("span", { class: "muted" }, count(total)),
      ),
      list,
    );
  });
}

/** Add facts to a list; a button at its end adds more of the `wanted` ones. */
function extend(list, { total, entities }, wanted) {
  const items = entities.map((item) =>
    el("li", {}, link(wanted.model, item), item.split !== "train" && [" ", badge(item.split)]),
  );
  list.append(...items);
  const start = list.children.length;
  if (total === start) return;
  const add = async () => {
    try {
      const found = await get("/v1/facts", { ...wanted, start, k: MORE });
      last.remove();
      extend(list, found, wanted);
      list.children[start].querySelector("a").focus();
    } catch (error) {
      button.textContent = `${error.message} Try again`;
    }
  };
  const text = `and ${count(total - start)} more`;
  const button = el("button", { type: "button", class: "more", onclick: add }, text);
  const last = el("li", {}, button);
  list.append(last);
}

function near({ neighbours }, model) {
  const rows = neighbours.map((item) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "name" }, link(model, item)),
      el("td", { class: "number" }, metric(item.similarity)),
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
    entityLink(model, name),
    label && el("small", {}, label),
  ];
}
