/** Missing facts: the most probable new facts of a relation, to accept or reject. */

import { address, go, state } from "./address.js";
import { combobox } from "./combobox.js";
import { el } from "./dom.js";
import { empty, fillFrom, skeleton } from "./loading.js";
import * as numbers from "./numbers.js";
import { entities, relations } from "./query.js";
import { probability, review } from "./review.js";
import { get } from "./service.js";

const PAGES = [100, 250, 1000]; // facts
const VERBS = [
  { name: "accept", done: "Accepted", key: "a" },
  { name: "reject", done: "Rejected", key: "r" },
];

export function missing({ models }) {
  const link = combobox({ label: "Relation", placeholder: "a relation", find: relations, choose: submit });
  const by = combobox({ label: "Type relation", placeholder: "such as instance_of", find: relations, choose() {} });
  const of = combobox({ label: "Type", placeholder: "such as city", find: entities, choose: submit });
  const within = el(
    "select",
    { id: "missing-within", onchange: () => (arrange(), within.value !== "type" && submit()) },
    el("option", { value: "" }, "all"),
    el("option", { value: "seen" }, "seen on this side of the relation"),
    el("option", { value: "type" }, "of a type"),
  );
  const least = el("input", {
    ...{ id: "missing-least", type: "number", min: "0", max: "0.9999", step: "any" },
    ...{ placeholder: "0", inputmode: "decimal" },
  });
  const list = review({
    store: "missing",
    verbs: VERBS,
    columns: ["probability"],
    cells: (fact) => [probability(fact.probability)],
  });
  const container = el("section", { class: "card answers", "aria-label": "Missing facts" }, skeleton(11));
  const type = el("div", { class: "slots two" }, by.element, of.element);

  function arrange() {
    type.hidden = within.value !== "type";
  }

  function submit() {
    const { start: _s, k: _k, ...rest } = state();
    const typed = within.value === "type" ? { by: by.value, of: of.value } : {};
    go({
      ...{ ...rest, by: undefined, of: undefined, ...typed },
      ...{ relation: link.value, within: within.value, least: least.value },
    });
  }

  const field = (label, input) =>
    el("div", { class: "field" }, el("label", { for: input.id }, label), input);
  return {
    title: () => "Missing facts",
    onkeydown: list.onkeydown,
    element: el(
      "div",
      { class: "view" },
      el("h1", { tabindex: "-1" }, "Missing facts"),
      el(
        "form",
        {
          class: "card question",
          "aria-label": "Which facts",
          onsubmit: (event) => (event.preventDefault(), submit()),
        },
        el(
          "div",
          { class: "question-row" },
          el(
            "div",
            { class: "slots" },
            link.element,
            field("Heads and tails", within),
            field("Probability at least", least),
          ),
          el("button", { class: "button strong" }, "Find"),
        ),
        type,
      ),
      container,
    ),
    async update(here, signal) {
      link.value = here.relation ?? "";
      by.value = here.by ?? "";
      of.value = here.of ?? "";
      within.value = here.within ?? "";
      least.value = here.least ?? "";
      arrange();
      const { model, relation, start, least: min_probability } = here;
      const allowed = here.within === "type" ? `type=${here.by ?? ""}:${here.of ?? ""}` : here.within;
      const [k, card] = [here.k ?? PAGES[0], models.find((item) => item.id === model)];
      const asked = { model, relation, within: allowed, min_probability, start, k };
      const load = async () => {
        if (relation) return get("/v1/missing", asked, signal);
        const { relations: all } = await get("/v1/relations", { model }, signal);
        if (!signal.aborted) go({ ...here, relation: all[0].name }, { replace: true });
      };
      await fillFrom(container, signal, load, (data) => page(here, data, list, card));
    },
  };
}

function page(here, data, list, card) {
  const k = Number(here.k ?? PAGES[0]);
  const more = data.facts.length >= k && PAGES.find((size) => size > k);
  const table = list.table(card, data, here.fresh);
  return [
    el("div", { class: "answers-top" }, list.totals, hideDecided(here)),
    table ||
      empty(
        data.facts.length ? "All are decided" : "No facts",
        el("p", {}, data.facts.length ? "Show more, or another relation." : "No new fact fits."),
      ),
    el(
      "div",
      { class: "answers-foot" },
      more && button({ ...here, k: String(more) }, `Show ${numbers.count(more)}`),
      data.stop < data.heads &&
        button({ ...here, start: String(data.stop), k: undefined }, "Ask the next heads"),
      el("span", { class: "muted took" }, `found in ${numbers.seconds(data.seconds)}`),
    ),
    el("p", { class: "muted notes" }, scope(data)),
  ];
}

/** What was computed. */
function scope({ start, stop, heads, exact }) {
  const [first, last, all] = [start + 1, stop, heads].map(numbers.count);
  const which =
    start === 0 && stop === heads
      ? `All ${all} possible heads were asked for every tail.`
      : `Heads ${first} to ${last} of ${all} were asked for every tail, those with most facts first.`;
  const late = exact ? "" : " Time ran out: other facts may be as probable.";
  return `${which}${late} The probability is that of a fact: both directions count, and how many other answers train has.`;
}

export function hideDecided(here) {
  const box = el("input", {
    type: "checkbox",
    checked: Boolean(here.fresh),
    onchange: (event) => go({ ...state(), fresh: event.target.checked ? "1" : undefined }),
  });
  return el("label", { class: "check" }, box, "Hide decided facts");
}

export function button(to, text) {
  return el("a", { class: "button", href: address(to) }, text);
}
