/** The first view: a query, its ranked answers and their reasons. */

import { address, unknownPart, go, state } from "./address.js";
import { answersTable, badge } from "./answers.js";
import { copyButtons } from "./copy.js";
import { el, put } from "./dom.js";
import { entityLink, short } from "./names.js";
import { count, seconds } from "./numbers.js";
import { empty, fillFrom, skeleton } from "./loading.js";
import { chip, queryText, queryForm, incomplete } from "./query.js";
import { get } from "./service.js";
import { why } from "./why.js";

const PAGES = [10, 25, 50, 100, 250, 1000];

/** @param {{ models: any[], examples: Record<string, any[]> }} about */
export function ask({ examples }) {
  const form = queryForm();
  const chips = el("ul", { class: "chips", "aria-label": "Examples" });
  const answers = el("section", { class: "card answers", "aria-label": "Answers" }, skeleton(11));
  let loaded = "";

  return {
    title: (here) => (here.head || here.tail ? queryText(here) : "Ask"),
    element: el(
      "div",
      { class: "view" },
      el("h1", { class: "unseen", tabindex: "-1" }, "Ask"),
      form.element,
      el("div", { class: "examples" }, el("span", { class: "muted" }, "Try"), chips),
      answers,
    ),
    /** @param {AbortSignal} signal */
    async update(here, signal) {
      put(
        chips,
        (examples[here.model] ?? []).map((item) => el("li", {}, chip(item, here.model))),
      );
      const missing = form.update(here);
      if (missing.length) {
        put(answers, incomplete(missing));
        loaded = "";
        return;
      }
      const { why: _, ...query } = here;
      if (address(query) !== loaded) {
        const load = () => get("/v1/predict", parameters(here), signal);
        loaded = (await fillFrom(answers, signal, load, (data) => page(here, data)))
          ? address(query)
          : "";
      }
      if (!signal.aborted && loaded) explain(answers, here, signal);
    },
  };
}

/** The parameters of `/v1/predict` for a state. */
export function parameters(here, model = here.model) {
  const part = unknownPart(here);
  const given = Object.fromEntries(
    ["head", "relation", "tail"].filter((item) => item !== part).map((item) => [item, here[item]]),
  );
  return { model, ...given, k: here.k ?? PAGES[0], hide_known: here.fresh ? "true" : "false" };
}

function page(here, data) {
  const part = unknownPart(here);
  const k = Number(here.k ?? PAGES[0]);
  const more = PAGES.find((size) => size > k);
  const full = data.answers.length >= k;
  const hide = el("input", {
    type: "checkbox",
    checked: Boolean(here.fresh),
    onchange: (event) =>
      go({ ...state(), why: undefined, fresh: event.target.checked ? "1" : undefined }),
  });
  return [
    el(
      "div",
      { class: "answers-top" },
      el("h2", {}, queryText(here)),
      el("label", { class: "check" }, hide, "Hide known facts"),
    ),
    here[part] && expected(here, part, data),
    data.answers.length
      ? answersTable(here, data)
      : empty(
          "No new answers",
          el("p", {}, "All answers are known facts. Show known facts to see them."),
        ),
    el(
      "div",
      { class: "answers-foot" },
      more &&
        full &&
        el(
          "a",
          { class: "button", href: address({ ...here, why: undefined, k: String(more) }) },
          `Show ${count(more)}`,
        ),
      copyButtons(here, data),
      el("span", { class: "muted took" }, `answered in ${seconds(data.seconds)}`),
    ),
    el(
      "p",
      { class: "muted notes" },
      `Softmax share: the softmax of the scores over all ${part === "relation" ? "relations" : "entities"}. `,
      data.calibration
        ? `Calibrated: ${data.calibration}. `
        : "There is no calibrated probability for this query. ",
      "The model has learned the facts of train, not those of valid and test. New: a fact that is in none of them.",
    ),
  ];
}

/** The right answer of a query that has one, such as the worst queries. */
function expected(here, part, data) {
  const key = part === "relation" ? "relation" : "entity";
  const found = data.answers.find((item) => item[key] === here[part]);
  return el(
    "p",
    { class: "expected" },
    "The right answer is ",
    part === "relation"
      ? el("b", {}, short(here[part]))
      : entityLink(here.model, here[part]),
    found
      ? ` — rank ${found.rank} here. `
      : ` — not among the first ${count(data.answers.length)}. `,
    found && badge(found.known),
  );
}

/** Show the reasons for the answer that the state names, and close the others. */
function explain(answers, here, signal) {
  for (const button of answers.querySelectorAll("button.why")) {
    const row = button.closest("tr");
    const open = row.dataset.answer === here.why;
    if (open && button.getAttribute("aria-expanded") !== "true") {
      const container = el("td", { colspan: 7, role: "cell" });
      row.after(el("tr", { class: "why-row", role: "row" }, container));
      why(container, here, row.dataset.answer, signal);
    } else if (!open && button.getAttribute("aria-expanded") === "true") {
      row.nextElementSibling.remove();
    }
    button.setAttribute("aria-expanded", String(open));
  }
}
