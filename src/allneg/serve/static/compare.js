/** Two models, one query: both rankings, and lines between equal answers. */

import { address, unknownPart, go, state } from "./address.js";
import { badge } from "./answers.js";
import { parameters } from "./ask.js";
import { el, put, svg } from "./dom.js";
import { short } from "./names.js";
import * as numbers from "./numbers.js";
import { empty, fillFrom, skeleton, errorMessage } from "./loading.js";
import { chip, queryText, queryForm, incomplete } from "./query.js";
import { get } from "./service.js";

const ROW = 44; // pixels; also in views.css

/** @param {{ models: any[], examples: Record<string, any[]> }} about */
export function compare({ models, examples }) {
  const form = queryForm();
  const chips = el("ul", { class: "chips", "aria-label": "Examples" });
  const container = el(
    "section",
    { class: "card answers", "aria-label": "Both rankings" },
    skeleton(11),
  );
  return {
    title: (here) => (here.head || here.tail ? `Compare: ${queryText(here)}` : "Compare"),
    element: el(
      "div",
      { class: "view" },
      el("h1", { class: "unseen", tabindex: "-1" }, "Compare two models"),
      form.element,
      el("div", { class: "examples" }, el("span", { class: "muted" }, "Try"), chips),
      container,
    ),
    async update(here, signal) {
      const other = here.other ?? models.find((item) => item.id !== here.model)?.id;
      put(
        chips,
        (examples[here.model] ?? []).map((item) => el("li", {}, compareChip(item, here, other))),
      );
      const missing = form.update(here);
      if (!other) {
        const call = el("code", {}, "allneg explore RUN RUN");
        return put(
          container,
          empty("Only one model is loaded", el("p", {}, "Start the explorer with two runs: ", call)),
        );
      }
      if (missing.length) return put(container, incomplete(missing));
      const ask = (model) =>
        get("/v1/predict", parameters(here, model), signal).catch((error) => ({ error }));
      return fillFrom(
        container,
        signal,
        () => Promise.all([ask(here.model), ask(other)]),
        ([left, right]) => page(here, models, [here.model, other], [left, right]),
      );
    },
  };
}

function compareChip(example, here, other) {
  const link = chip(example, here.model);
  const { head, relation, tail } = example;
  link.setAttribute(
    "href",
    address({ view: "compare", model: here.model, other, head, relation, tail }),
  );
  return link;
}

function page(here, models, ids, [left, right]) {
  if (left.error && right.error) throw left.error;
  const key = unknownPart(here) === "relation" ? "relation" : "entity";
  const lists = [left, right].map((data) =>
    (data.answers ?? []).map((item) => ({ ...item, name: item[key] })),
  );
  const both = Boolean(left.answers && right.answers); // else there are no moves
  const shared = lists[0].filter((item) => lists[1].some((theirs) => theirs.name === item.name));
  const size = Math.max(lists[0].length, lists[1].length);
  return [
    el(
      "div",
      { class: "answers-top" },
      el("h2", {}, queryText(here)),
      both &&
        el(
          "p",
          { class: "muted agree" },
          `${shared.length} of the first ${size} answers are in both`,
        ),
    ),
    el(
      "div",
      { class: "sides" },
      column(here, models, ids, 0, left, lists, both),
      el("div", { class: "moves", "aria-hidden": "true" }, moves(lists)),
      column(here, models, ids, 1, right, lists, both),
    ),
    el(
      "p",
      { class: "muted notes" },
      "The numbers are softmax shares. ↑ and ↓: how many ranks an answer moves from left to right; ",
      "in and out: it is only in the right or only in the left list.",
    ),
  ];
}

function column(here, models, ids, side, data, lists, both) {
  const field = side === 0 ? "model" : "other";
  const options = models.map((item) =>
    el("option", { value: item.id, selected: item.id === ids[side] }, item.id),
  );
  const choose = (event) => go({ ...state(), other: ids[1], [field]: event.target.value });
  const label = side === 0 ? "Left model" : "Right model";
  return el(
    "div",
    { class: "side" },
    el("select", { "aria-label": label, onchange: choose }, options),
    data.error
      ? errorMessage(
          data.error,
          () => go(state()),
          data.error.code === "unknown_model" ? field : undefined,
        )
      : el(
          "ol",
          { class: "rows", "aria-label": ids[side] },
          lists[side].map((item) =>
            row(here, ids[side], item, both && move(item, lists[1 - side], side)),
          ),
        ),
  );
}

function row(here, model, answer, moved) {
  const link =
    unknownPart(here) === "relation"
      ? address({ model, head: here.head, relation: answer.name })
      : address({ view: "entity", model, name: answer.name });
  return el(
    "li",
    { "data-answer": answer.name },
    el("span", { class: "rank" }, answer.rank),
    el(
      "span",
      { class: "name" },
      el("a", { href: link, title: answer.label ?? answer.name }, short(answer.name)),
    ),
    el(
      "span",
      { class: "aside" },
      moved,
      " ",
      numbers.share(answer.share),
      " ",
      badge(answer.known),
    ),
  );
}

/** How far an answer moved from left to right; shown in the right list. */
function move(answer, theirs, side) {
  const before = theirs.find((item) => item.name === answer.name);
  if (!before)
    return side === 1
      ? el("span", { class: "move in", title: "not in the left list" }, "in")
      : el("span", { class: "move out", title: "not in the right list" }, "out");
  if (side === 0) return null;
  const up = before.rank - answer.rank;
  const text = up === 0 ? "=" : up > 0 ? `↑${up}` : `↓${-up}`;
  return el("span", { class: `move ${up === 0 ? "same" : up > 0 ? "up" : "down"}` }, text);
}

function moves([left, right]) {
  const height = ROW * Math.max(left.length, right.length, 1);
  const lines = left.flatMap((item, i) => {
    const j = right.findIndex((theirs) => theirs.name === item.name);
    if (j < 0) return [];
    const [y1, y2] = [(i + 0.5) * ROW, (j + 0.5) * ROW];
    const kind = i === j ? "same" : j < i ? "up" : "down";
    return [svg("path", { class: `moved ${kind}`, d: `M0 ${y1} C40 ${y1} 60 ${y2} 100 ${y2}` })];
  });
  return svg("svg", { viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", height }, lines);
}
