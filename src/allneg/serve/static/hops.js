/** Multi-hop questions: a question is built hop by hop or typed; answers show their reasons. */

import { address, go, state } from "./address.js";
import { bar } from "./answers.js";
import { combobox } from "./combobox.js";
import { derivation } from "./derivation.js";
import { el, put } from "./dom.js";
import { key } from "./graph.js";
import { empty, fillFrom, sentence, skeleton } from "./loading.js";
import { nameLink, short } from "./names.js";
import * as numbers from "./numbers.js";
import { entities, relations } from "./query.js";
import { get } from "./service.js";

const PAGES = [10, 25, 100];
const VARIABLES = ["?x", "?y", "?z", "?u", "?v", "?w"];
const QUESTION = /^\s*(\?[\p{L}\p{N}_]+)\s*:\s*(.*)$/su; // the answer's variable, the conditions

export function hops() {
  const found = { terms: (q, signal) => terms(text.value, q, signal) };
  const from = combobox({ label: "From", placeholder: "an entity", find: found.terms, choose() {} });
  const link = combobox({ label: "Relation", placeholder: "a relation", find: relations, choose() {} });
  const to = combobox({ label: "To", placeholder: "something new", find: found.terms, choose() {} });
  const join = el(
    "select",
    { "aria-label": "Join with" },
    [["and", "and"], ["or", "or"], ["not", "and not"]].map(([value, words]) => el("option", { value }, words)),
  );
  const back = el("input", { type: "checkbox" });
  const facts = el("input", { type: "checkbox", onchange: submit });
  const text = el("textarea", {
    ...{ id: "question", rows: "2", maxlength: 4096, spellcheck: "false", autocapitalize: "off" },
    placeholder: "?x : borders(France, ?y), speaks(?y, ?x)",
    onkeydown(event) {
      if (event.key !== "Enter" || event.shiftKey) return;
      event.preventDefault();
      submit();
    },
  });
  const container = el("section", { class: "card answers", "aria-label": "Answers" }, skeleton(8));

  function ask(question) {
    go({ view: "hops", model: state().model, question: question.trim(), certain: facts.checked && "1" });
  }

  function submit() {
    ask(text.value);
  }

  function add() {
    const hop = { from: from.value, relation: link.value, to: to.value };
    const lacks = [["From", from], ["Relation", link]].find(([, box]) => !box.value);
    if (lacks) return lacks[1].input.focus();
    ask(withHop(text.value, { ...hop, join: join.value, back: back.checked }));
    link.input.focus();
  }

  return {
    title: (here) => short(here.question ?? "Multi-hop"),
    element: el(
      "div",
      { class: "view" },
      el("h1", { tabindex: "-1" }, "Multi-hop questions"),
      el(
        "form",
        {
          class: "card question",
          "aria-label": "Add a hop",
          onsubmit: (event) => (event.preventDefault(), add()),
        },
        el(
          "div",
          { class: "question-row" },
          el("div", { class: "slots" }, from.element, link.element, to.element),
          el("button", { class: "button strong" }, "Add hop"),
        ),
        el(
          "div",
          { class: "hop-options" },
          el("label", { class: "check" }, "Join with", join),
          el("label", { class: "check" }, back, "Follow the relation from tail to head"),
        ),
      ),
      el(
        "form",
        {
          class: "card question",
          "aria-label": "Question",
          onsubmit: (event) => (event.preventDefault(), submit()),
        },
        el(
          "div",
          { class: "question-row" },
          el("div", { class: "field grow" }, el("label", { for: "question" }, "Question"), text),
          el("button", { class: "button strong" }, "Ask"),
        ),
        el(
          "div",
          { class: "hop-options" },
          el("label", { class: "check" }, facts, "Known facts are certain"),
          el("button", { type: "button", class: "button quiet", onclick: () => ask("") }, "Start again"),
        ),
      ),
      container,
    ),
    async update(here, signal) {
      const question = here.question ?? "";
      text.value = question;
      facts.checked = Boolean(here.certain);
      from.value = question.match(QUESTION)?.[1] ?? "";
      link.value = to.value = "";
      join.value = "and";
      back.checked = false;
      text.removeAttribute("aria-invalid");
      if (!question) return put(container, start());
      const { model, certain, k = PAGES[0] } = here;
      const load = () => get("/v1/ask", { model, question, facts: certain && "true", k }, signal);
      await fillFrom(
        container,
        signal,
        // A mistake in the question is shown in the question.
        () => load().catch((error) => ({ error, at: /^character (\d+): ([^\n]*)/.exec(error.message) })),
        (data) => (data.at ? mistake(text, question, data.at) : page(here, data)),
      );
    },
  };
}

/** The variables of a question, then entities, as suggestions. */
async function terms(question, q, signal) {
  const used = new Set(question.match(/\?[\p{L}\p{N}_]+/gu));
  const variables = [...used].filter((name) => name.startsWith(q) || q === "");
  const known = q.startsWith("?") ? [] : await entities(q, signal);
  return [...variables.map((name) => ({ name, gloss: "variable" })), ...known];
}

/** A question with one more condition. Without `to`, it asks for what the hop leads to. */
export function withHop(question, { from, relation, to, join, back }) {
  const [, answer, body] = question.match(QUESTION) ?? [null, "", ""];
  const free = VARIABLES.find((name) => !question.includes(name)) ?? "?answer";
  const target = to || (answer && join !== "and" ? answer : free);
  const atom = `${back ? "~" : ""}${quoted(relation)}(${term(from)}, ${term(target)})`;
  if (!body) return `${[target, from].find((name) => name.startsWith("?")) ?? free} : ${atom}`;
  if (join === "or") return `${answer} : ${body} ; ${atom}`;
  const before = body.includes(";") ? `(${body})` : body;
  return `${target === free ? free : answer} : ${before}, ${join === "not" ? "not " : ""}${atom}`;
}

const term = (name) => (name.startsWith("?") ? name : quoted(name));

/** A name as questions have it: in quotes unless it is plain. */
function quoted(name) {
  const plain = /^[\p{L}\p{N}_/][\p{L}\p{N}_/.:'-]*$/u.test(name) && name !== "not";
  return plain ? name : `"${name.replace(/["\\]/g, "\\$&")}"`;
}

function page(here, data) {
  if (data.error) throw data.error;
  const k = Number(here.k ?? PAGES[0]);
  const more = data.answers.length >= k && PAGES.find((size) => size > k);
  if (data.answers.length === 0) return empty("No answers", el("p", {}, "Nothing fits this question."));
  return [
    el(
      "div",
      { class: "answers-top" },
      el("h2", {}, "Answers and what they rest on"),
      el(
        "p",
        { class: "legend" },
        ...[key("known", "known"), key("predicted", "inferred")],
        data.answers.some(({ steps }) => steps.some((step) => step.negated)) && key("negated", "not"),
      ),
    ),
    el(
      "ol",
      { class: "derived" },
      data.answers.map((answer, i) =>
        el(
          "li",
          { "data-answer": answer.entity },
          el(
            "div",
            { class: "derived-name" },
            el("span", { class: "rank" }, i + 1),
            el(
              "div",
              { class: "name" },
              nameLink(answer.entity, address({ view: "entity", model: here.model, name: answer.entity })),
              data.labels[answer.entity] && el("small", {}, data.labels[answer.entity]),
              el("span", { class: "chance" }, numbers.share(answer.probability), bar(answer.probability)),
            ),
          ),
          derivation(answer, data.labels, here.model),
        ),
      ),
    ),
    el(
      "div",
      { class: "answers-foot" },
      more && el("a", { class: "button", href: address({ ...here, k: String(more) }) }, `Show ${more}`),
      el("span", { class: "muted took" }, `answered in ${numbers.seconds(data.seconds)}`),
    ),
    el(
      "p",
      { class: "muted notes" },
      "The probability of an answer is that of its best derivation: the product of its facts. ",
      data.answers[0].scores === "softmax" &&
        "These are not calibrated: that of a fact is its softmax share, which is small where many answers are right. ",
      "“Or” joins two probabilities to p + q − pq. ",
      "An arrow leads from the head of a fact to its tail.",
    ),
  ];
}

/** The question with a mark at the character where it is wrong. */
function mistake(field, question, [, number, message]) {
  const characters = [...question];
  const at = Number(number) - 1;
  const before = characters.slice(0, at).join("");
  const wrong = characters[at] ?? " ";
  field.setAttribute("aria-invalid", "true");
  if (document.activeElement === field)
    field.setSelectionRange(before.length, before.length + (at < characters.length ? wrong.length : 0));
  return el(
    "div",
    { class: "trouble", role: "alert" },
    el("p", { class: "empty-title" }, `Character ${number}`),
    el("p", {}, sentence(message)),
    el("p", { class: "where" }, before, el("mark", {}, wrong), characters.slice(at + 1).join("")),
  );
}

function start() {
  return empty(
    "Add a hop, or type a question",
    el("p", {}, "A hop leads from an entity over a relation to what you look for. The next one continues there."),
    el("p", {}, el("code", {}, "?x : borders(France, ?y), speaks(?y, ?x)")),
  );
}
