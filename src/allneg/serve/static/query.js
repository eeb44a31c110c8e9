/** The form of a query: head, relation and tail, one of which is the answer. */

import { address, unknownPart, go, state } from "./address.js";
import { combobox } from "./combobox.js";
import { el, uniqueId, put, announce } from "./dom.js";
import { count } from "./numbers.js";
import { empty } from "./loading.js";
import { short } from "./names.js";
import { get } from "./service.js";

const PARTS = ["head", "relation", "tail"];

/** Entities that match a text, as suggestions of a combobox. */
export async function entities(q, signal) {
  const data = await get("/v1/entities", { model: state().model, q, limit: 20 }, signal);
  return data.entities.map(({ name, label, degree, new: isNew }) => ({
    name,
    gloss: label,
    aside: isNew ? `new · ${count(degree)}` : count(degree),
  }));
}

/** Relations that match a text, as suggestions; those of the head come first. */
export async function relations(q, signal, head) {
  let data;
  try {
    data = await get("/v1/relations", { model: state().model, q, head }, signal);
  } catch (error) {
    if (signal.aborted || !head) throw error;
    data = await get("/v1/relations", { model: state().model, q }, signal); // the head is not a name yet
  }
  return data.relations.map(({ name, count: facts, typical }) => ({
    name,
    gloss: typical ? "typical here" : null,
    aside: count(facts),
  }));
}

/** The form; `update(state)` shows a query, and a submitted query goes to the address. */
export function queryForm() {
  const boxes = {
    head: combobox({ label: "Head", placeholder: "an entity", find: entities, choose: submit }),
    relation: combobox({
      label: "Relation",
      placeholder: "a relation",
      find: (q, signal) =>
        relations(q, signal, ask === "tail" ? boxes.head.value : undefined),
      choose: submit,
    }),
    tail: combobox({ label: "Tail", placeholder: "an entity", find: entities, choose: submit }),
  };
  const unknown = el(
    "div",
    { class: "field" },
    el("span", { class: "label" }),
    el("output", { class: "unknown" }, "?"),
  );
  const [group, slots] = [uniqueId("ask"), el("div", { class: "slots" })];
  const radios = Object.fromEntries(
    PARTS.map((part) => [
      part,
      el("input", { type: "radio", name: group, value: part, onchange: () => turn(part) }),
    ]),
  );
  let ask = "tail";

  const element = el(
    "form",
    {
      class: "card question",
      "aria-label": "Query",
      onsubmit: (event) => (event.preventDefault(), submit()),
    },
    el(
      "div",
      { class: "question-top" },
      el(
        "fieldset",
        { class: "segments" },
        el("legend", { class: "unseen" }, "Ask for"),
        PARTS.map((part) => el("label", {}, radios[part], el("span", {}, `${part}?`))),
      ),
      el(
        "button",
        { type: "button", class: "button quiet", onclick: swap },
        el("span", { "aria-hidden": "true" }, "⇄"),
        "Swap direction",
      ),
    ),
    el("div", { class: "question-row" }, slots, el("button", { class: "button strong" }, "Ask")),
  );

  function arrange(part) {
    ask = part;
    radios[part].checked = true;
    unknown.firstChild.textContent = boxes[part].element.querySelector("label").textContent;
    put(
      slots,
      PARTS.map((item) => (item === part ? unknown : boxes[item].element)),
    );
  }

  function given() {
    const parts = PARTS.filter((part) => part !== ask && boxes[part].value);
    return Object.fromEntries(parts.map((part) => [part, boxes[part].value]));
  }

  function submit() {
    const { head: _h, relation: _r, tail: _t, ask: _a, why: _w, k: _k, ...rest } = state();
    const parts = given();
    go({ ...rest, ...parts, ...(unknownPart(parts) === ask ? {} : { ask }) });
  }

  function turn(part) {
    // Only `slots` is filled again: the radio keeps the focus.
    arrange(part);
    submit();
  }

  function swap() {
    const { head, tail } = boxes;
    [head.value, tail.value] = [tail.value, head.value];
    if (ask !== "relation") arrange(ask === "tail" ? "head" : "tail");
    submit();
  }

  return {
    element,
    /** Show the query of a state; returns the missing parts. */
    update(wanted) {
      const part = unknownPart(wanted);
      if (part !== ask || !slots.firstChild) arrange(part);
      for (const item of PARTS) {
        // The hidden field keeps its text for the next query.
        if (item !== part) boxes[item].value = wanted[item] ?? "";
      }
      return PARTS.filter((item) => item !== part && !wanted[item]);
    },
  };
}

/** The query as a line: France — borders — ? */
export function queryText({ head, relation, tail, ask }) {
  const part = unknownPart({ head, relation, tail, ask });
  return PARTS.map((item) => (item === part ? "?" : short({ head, relation, tail }[item] ?? ""))).join(" — ");
}

/** The message in place of answers while parts are missing. */
export function incomplete(missing) {
  const title = `Choose a ${missing.join(" and a ")}`;
  announce(title);
  return empty(title, el("p", {}, "Fill in two of the three fields, or choose an example above."));
}

/** A link to a query. */
export function chip(query, model) {
  const { head, relation, tail, ask } = query;
  const to = address({
    model,
    head: head ?? undefined,
    relation: relation ?? undefined,
    tail: tail ?? undefined,
    ask,
  });
  return el("a", { class: "chip", href: to }, queryText(query));
}
