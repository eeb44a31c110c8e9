/** The first view: ask, read the ranked answers, ask why. */

import { address, asked, go, state } from "./address.js";
import { answersTable, badge } from "./answers.js";
import { copyButtons } from "./copy.js";
import { el, put } from "./dom.js";
import { count, seconds } from "./numbers.js";
import { empty, fillFrom, skeleton } from "./places.js";
import { chip, inWords, questionForm, unasked } from "./question.js";
import { get } from "./service.js";
import { why } from "./why.js";

const PAGES = [10, 25, 50, 100, 250, 1000];

/** @param {{ models: any[], examples: Record<string, any[]> }} about */
export function ask({ examples }) {
  const form = questionForm();
  const chips = el("ul", { class: "chips", "aria-label": "Examples" });
  const answers = el("section", { class: "card answers", "aria-label": "Answers" }, skeleton(11));
  let had = "";

  return {
    title: (here) => (here.head || here.tail ? inWords(here) : "Ask"),
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
        (examples[here.model] ?? []).map((each) => el("li", {}, chip(each, here.model))),
      );
      const missing = form.update(here);
      if (missing.length) {
        put(answers, unasked(missing));
        had = "";
        return;
      }
      const { why: _, ...question } = here;
      if (address(question) !== had) {
        const load = () => get("/v1/predict", parameters(here), signal);
        had = (await fillFrom(answers, signal, load, (said) => page(here, said)))
          ? address(question)
          : "";
      }
      if (!signal.aborted && had) explain(answers, here, signal);
    },
  };
}

/** What `/v1/predict` is asked for a state. */
export function parameters(here, model = here.model) {
  const part = asked(here);
  const given = Object.fromEntries(
    ["head", "relation", "tail"].filter((each) => each !== part).map((each) => [each, here[each]]),
  );
  return { model, ...given, k: here.k ?? PAGES[0], hide_known: here.fresh ? "true" : "false" };
}

function page(here, said) {
  const part = asked(here);
  const k = Number(here.k ?? PAGES[0]);
  const more = PAGES.find((size) => size > k);
  const full = said.answers.length >= k;
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
      el("h2", {}, inWords(here)),
      el("label", { class: "check" }, hide, "Hide known facts"),
    ),
    here[part] && expected(here, part, said),
    said.answers.length
      ? answersTable(here, said)
      : empty(
          "Nothing is new here",
          el("p", {}, "Every answer is known already. Show known facts to see them."),
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
      copyButtons(here, said),
      el("span", { class: "muted took" }, `answered in ${seconds(said.seconds)}`),
    ),
    el(
      "p",
      { class: "muted notes" },
      `Probability: the softmax of the scores over all ${part === "relation" ? "relations" : "entities"}. `,
      said.calibration
        ? `Calibrated: ${said.calibration}`
        : "No calibrated probability for this question.",
    ),
  ];
}

/** A question that came with its answer, as those that went worst do. */
function expected(here, part, said) {
  const key = part === "relation" ? "relation" : "entity";
  const found = said.answers.find((each) => each[key] === here[part]);
  return el(
    "p",
    { class: "expected" },
    "The right answer is ",
    part === "relation"
      ? el("b", {}, here[part])
      : el(
          "a",
          { href: address({ view: "entity", model: here.model, name: here[part] }) },
          here[part],
        ),
    found
      ? ` — rank ${found.rank} here. `
      : ` — not among the first ${count(said.answers.length)}. `,
    found && badge(found.known),
  );
}

/** Open the row that the state asks why of, close the others. */
function explain(answers, here, signal) {
  for (const button of answers.querySelectorAll("button.why")) {
    const row = button.closest("tr");
    const open = row.dataset.answer === here.why;
    if (open && button.getAttribute("aria-expanded") !== "true") {
      const place = el("td", { colspan: 7, role: "cell" });
      row.after(el("tr", { class: "why-row", role: "row" }, place));
      why(place, here, row.dataset.answer, signal);
    } else if (!open && button.getAttribute("aria-expanded") === "true") {
      row.nextElementSibling.remove();
    }
    button.setAttribute("aria-expanded", String(open));
  }
}
