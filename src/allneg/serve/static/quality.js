/** The quality of a model: report, heat map, training curves and worst queries. */

import { address } from "./address.js";
import { curves } from "./curves.js";
import { el, put } from "./dom.js";
import { short } from "./names.js";
import * as numbers from "./numbers.js";
import { empty, fillFrom, skeleton } from "./loading.js";
import { queryText } from "./query.js";
import { get } from "./service.js";

const HITS = ["1", "3", "10"];
const ORDERS = {
  "most triples first": (a, b) => b.tail.count - a.tail.count,
  "lowest MRR of tail queries first": (a, b) => a.tail.mrr - b.tail.mrr,
  "lowest MRR of head queries first": (a, b) => a.head.mrr - b.head.mrr,
};

/** @param {{ models: any[] }} about */
export function quality({ models }) {
  const container = el("div", { class: "quality" }, el("div", { class: "card" }, skeleton(16)));
  let loaded = "";
  return {
    title: () => "Quality",
    element: el("div", { class: "view" }, el("h1", { tabindex: "-1" }, "Quality"), container),
    async update(here, signal) {
      if (loaded === here.model) return;
      const model = models.find((item) => item.id === here.model);
      const load = () =>
        Promise.all([
          get("/v1/metrics", { model: here.model }, signal),
          get("/v1/curves", {}, signal),
        ]);
      const comparable = ({ model: id, curves: entries }) =>
        entries.length > 0 && models.find((item) => item.id === id).data === model.data;
      const show = ([data, { runs }]) => page(here.model, model, data, runs.filter(comparable));
      loaded = (await fillFrom(container, signal, load, show)) ? here.model : "";
    },
  };
}

function page(id, model, { report, heat, worst, worst_of: of }, runs) {
  return [
    report
      ? card(model, report)
      : el(
          "div",
          { class: "card" },
          empty(
            "No queries were ranked",
            el("p", {}, "The data has neither a test nor a valid split."),
          ),
        ),
    el(
      "div",
      { class: "halves" },
      el("section", { class: "card" }, el("h2", {}, "Loss"), curves(runs, "loss", "loss")),
      el(
        "section",
        { class: "card" },
        el("h2", {}, "MRR on valid"),
        curves(runs, "valid_mrr", "MRR on valid"),
      ),
    ),
    el(
      "section",
      { class: "card" },
      el("h2", {}, "By relation"),
      heat.length > 0 ? heatMap(heat, Object.values(report?.baselines ?? {})) : noQueries(),
    ),
    el("section", { class: "card" }, el("h2", {}, "Worst queries"), worstTable(id, worst, of)),
  ];
}

function card(model, report) {
  const big = (name, value) => el("div", { class: "big" }, el("dt", {}, name), el("dd", {}, value));
  const { in_words: words, ...rules } = report.protocol;
  return el(
    "section",
    { class: "card report" },
    el("h2", {}, `${model.model}, dim ${model.dim}, on ${model.data}, ${rules.split}`),
    el(
      "dl",
      { class: "bigs" },
      big("MRR", numbers.metric(report.mrr)),
      HITS.map((k) => big(`Hits@${k}`, numbers.metric(report.hits[k]))),
      big("mean rank", el("data", { value: report.mr }, report.mr.toFixed(1))),
    ),
    sides(report),
    el("p", { class: "protocol" }, el("b", {}, "Protocol. "), words ?? JSON.stringify(rules)),
    el(
      "p",
      { class: "muted" },
      `${numbers.count(report.count)} queries, ${numbers.count(report.candidates)} candidates per query. `,
      `Trained on ${numbers.count(model.train)} triples`,
      model.epochs ? `, ${numbers.count(model.epochs)} epochs` : "",
      model.seconds ? `, ${numbers.seconds(model.seconds)}.` : ".",
    ),
    el(
      "details",
      {},
      el("summary", {}, "Protocol and recipe in full"),
      el("div", { class: "halves" }, list(rules), list(model.recipe ?? {})),
    ),
  );
}

function sides(report) {
  const baselines = Object.entries(report.baselines);
  const row = (name, item) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, name),
      [item.mrr, ...HITS.map((k) => item.hits[k])].map((value) =>
        el("td", { class: "number" }, numbers.metric(value)),
      ),
    );
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Quality by side" },
    el(
      "table",
      { class: "narrow" },
      el("caption", { class: "unseen" }, "By side, and baselines"),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ["answer", "MRR", "Hits@1", "Hits@3", "Hits@10"].map((text, i) =>
            el("th", { scope: "col", class: i > 0 && "number" }, text),
          ),
        ),
      ),
      el("tbody", {}, row("tail", report.by_side.tail), row("head", report.by_side.head)),
      baselines.length > 0 &&
        el(
          "tbody",
          {},
          el("tr", {}, el("th", { scope: "rowgroup", colspan: 5 }, "baselines, without a model")),
          baselines.map(([name, item]) => row(name, item)),
        ),
    ),
  );
}

function list(rules) {
  const flat = (object, before) =>
    Object.entries(object).flatMap(([name, value]) =>
      value !== null && typeof value === "object" && !Array.isArray(value)
        ? flat(value, `${before}${name}.`)
        : [[before + name, value]],
    );
  return el(
    "dl",
    { class: "rules" },
    flat(rules, "").map(([name, value]) => [
      el("dt", {}, name),
      el("dd", {}, value === null ? "–" : String(value)),
    ]),
  );
}

function noQueries() {
  return el("p", { class: "muted" }, "No queries were ranked.");
}

/** Relation × metric, for each side, and the MRR of the best baseline; darker is better. */
function heatMap(heat, baselines) {
  const metrics = [
    ["MRR", (item) => item.mrr],
    ...HITS.map((k) => [`H@${k}`, (item) => item.hits[k]]),
  ];
  const cell = (value) =>
    el("td", { class: `heat heat-${Math.min(9, Math.floor(value * 10))}` }, numbers.metric(value));
  const none = el("td", { class: "heat" }, "–");
  const best = (relation, side) =>
    baselines.length > 0
      ? cell(Math.max(...baselines.map((item) => item.by_relation[relation][side])))
      : none.cloneNode(true);
  const cells = (item) =>
    metrics.map(([, pick]) => (item && item.count ? cell(pick(item)) : none.cloneNode(true)));
  const row = ({ relation, category, head, tail }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "name" }, short(relation), " ", el("small", {}, category)),
      el("td", { class: "number" }, numbers.count((tail ?? head)?.count ?? 0)),
      cells(tail),
      best(relation, "tail"),
      cells(head),
      best(relation, "head"),
    );
  const body = el("tbody");
  const order = el(
    "select",
    { onchange: sort },
    Object.keys(ORDERS).map((name) => el("option", {}, name)),
  );
  function sort() {
    put(body, heat.toSorted(ORDERS[order.value]).map(row));
  }
  sort();
  const names = [...metrics.map(([name]) => name), "baseline"].map((name) =>
    el("th", { scope: "col", class: "number" }, name),
  );
  const table = el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Quality by relation" },
    el(
      "table",
      { class: "heatmap" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "col", rowspan: 2 }, "relation"),
          el("th", { scope: "col", rowspan: 2, class: "number" }, "triples"),
          el("th", { scope: "colgroup", colspan: 5 }, "tail queries"),
          el("th", { scope: "colgroup", colspan: 5 }, "head queries"),
        ),
        el(
          "tr",
          {},
          names,
          names.map((item) => item.cloneNode(true)),
        ),
      ),
      body,
    ),
  );
  return [el("label", { class: "check" }, "Order", order), table];
}

function worstTable(model, worst, of) {
  if (worst.length === 0) return noQueries();
  const rows = worst.map(({ head, relation, tail, side, rank }) =>
    el(
      "tr",
      {},
      el("td", { class: "number rank" }, numbers.rank(rank)),
      el(
        "td",
        { class: "name" },
        el(
          "a",
          { href: address({ model, head, relation, tail, ask: side }) },
          queryText({ head, relation, tail, ask: side }),
        ),
      ),
      el("td", { class: "name" }, short(side === "tail" ? tail : head)),
    ),
  );
  const note = el(
    "p",
    { class: "muted" },
    `Among the queries of ${numbers.count(of)} triples, those whose right answer has the worst rank.`,
  );
  return [
    note,
    el(
      "div",
      { class: "scroll worst", tabindex: "0", role: "region", "aria-label": "Worst queries" },
      el(
        "table",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "col", class: "number" }, "rank"),
            el("th", { scope: "col" }, "query"),
            el("th", { scope: "col" }, "right answer"),
          ),
        ),
        el("tbody", {}, rows),
      ),
    ),
  ];
}
