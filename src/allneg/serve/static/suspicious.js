/** Suspicious facts: those of a file of `allneg audit`, to keep or remove. */

import { go, state } from "./address.js";
import { el, put } from "./dom.js";
import { empty, fillFrom, skeleton } from "./loading.js";
import { button, hideDecided } from "./missing.js";
import { short } from "./names.js";
import * as numbers from "./numbers.js";
import { probability, review } from "./review.js";
import { get } from "./service.js";

const PAGES = [100, 250, 1000]; // facts
const VERBS = [
  { name: "keep", done: "Kept", key: "a" },
  { name: "remove", done: "Removed", key: "r" },
];

export function suspicious({ models }) {
  const relation = el("select", {
    id: "suspicious-relation",
    onchange: (event) => go({ ...state(), k: undefined, relation: event.target.value }),
  });
  const list = review({
    store: "suspicious",
    verbs: VERBS,
    columns: ["probability", "ranks", "why it is suspicious"],
    cells: (fact) => [
      probability(fact.probability),
      [el("span", {}, "head ", numbers.rank(fact.head_rank)), el("br"), el("span", {}, "tail ", numbers.rank(fact.tail_rank))],
      [fact.reason, fact.expected && el("small", {}, `expected ${short(fact.expected)}`)],
    ],
  });
  const container = el("section", { class: "card answers", "aria-label": "Suspicious facts" }, skeleton(11));
  return {
    title: () => "Suspicious facts",
    onkeydown: list.onkeydown,
    element: el(
      "div",
      { class: "view" },
      el("h1", { tabindex: "-1" }, "Suspicious facts"),
      container,
    ),
    async update(here, signal) {
      const { model, relation: link } = here;
      const [k, card] = [Number(here.k ?? PAGES[0]), models.find((item) => item.id === model)];
      await fillFrom(
        container,
        signal,
        () => get("/v1/suspicious", { model, relation: link, k }, signal),
        (data) => {
          if (Object.keys(data.relations).length === 0) return nothing();
          put(
            relation,
            el("option", { value: "" }, "all"),
            Object.entries(data.relations).map(([name, count]) =>
              el("option", { value: name }, `${short(name)} (${numbers.count(count)})`),
            ),
          );
          relation.value = link ?? "";
          return page(here, data, list, card, relation);
        },
      );
    },
  };
}

function page(here, data, list, card, relation) {
  const more = data.total > data.facts.length && PAGES.find((size) => size > data.facts.length);
  return [
    el(
      "div",
      { class: "answers-top" },
      list.totals,
      el("label", { class: "check" }, "Relation", relation),
      hideDecided(here),
    ),
    list.table(card, data, here.fresh) || empty(data.facts.length ? "All are decided" : "No facts"),
    el(
      "div",
      { class: "answers-foot" },
      more && button({ ...here, k: String(more) }, `Show ${numbers.count(more)}`),
      el(
        "span",
        { class: "muted took" },
        `${numbers.count(data.facts.length)} of ${numbers.count(data.total)} facts, most suspicious first`,
      ),
    ),
  ];
}

function nothing() {
  const call = (text) => el("code", {}, text);
  return empty(
    "No suspicious facts are loaded",
    el("p", {}, "Judge the facts of your data: ", call("allneg audit DATA --out suspicious.jsonl")),
    el("p", {}, "Then show them here: ", call("allneg explore RUN --audit suspicious.jsonl")),
  );
}
