/** The form of a question: head, relation, tail, one of which is asked for. */

import { address, asked, go, state } from "./address.js";
import { combobox } from "./combobox.js";
import { el, fresh, put, say } from "./dom.js";
import { count } from "./numbers.js";
import { empty } from "./places.js";
import { get } from "./service.js";

const PARTS = ["head", "relation", "tail"];

/** Entities that begin with or hold a text, as a combobox suggests them. */
export async function entities(q, signal) {
  const said = await get("/v1/entities", { model: state().model, q, limit: 20 }, signal);
  return said.entities.map(({ name, label, degree }) => ({
    name,
    gloss: label,
    aside: count(degree),
  }));
}

/** The form; `update(state)` shows a question, and what is asked goes to the address. */
export function questionForm() {
  const boxes = {
    head: combobox({ label: "Head", placeholder: "an entity", find: entities, choose: submit }),
    relation: combobox({
      label: "Relation",
      placeholder: "a relation",
      find: relations,
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
  const [group, slots] = [fresh("ask"), el("div", { class: "slots" })];
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
      "aria-label": "Question",
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
      PARTS.map((each) => (each === part ? unknown : boxes[each].element)),
    );
  }

  function given() {
    const parts = PARTS.filter((part) => part !== ask && boxes[part].value);
    return Object.fromEntries(parts.map((part) => [part, boxes[part].value]));
  }

  function submit() {
    const { head: _h, relation: _r, tail: _t, ask: _a, why: _w, k: _k, ...rest } = state();
    const parts = given();
    go({ ...rest, ...parts, ...(asked(parts) === ask ? {} : { ask }) });
  }

  function turn(part) {
    // The radio keeps the focus: `slots` is arranged anew, the radios stay where they are.
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
    /** Show the question of a state; gives the parts that are missing. */
    update(wanted) {
      const part = asked(wanted);
      if (part !== ask || !slots.firstChild) arrange(part);
      for (const each of PARTS) {
        // What is asked for keeps its text: it may be asked about next.
        if (each !== part) boxes[each].value = wanted[each] ?? "";
      }
      return PARTS.filter((each) => each !== part && !wanted[each]);
    },
  };

  async function relations(q, signal) {
    const head = ask === "tail" ? boxes.head.value : undefined;
    let said;
    try {
      said = await get("/v1/relations", { model: state().model, q, head }, signal);
    } catch (error) {
      if (signal.aborted || !head) throw error;
      said = await get("/v1/relations", { model: state().model, q }, signal); // the head is no name yet
    }
    return said.relations.map(({ name, count: facts, typical }) => ({
      name,
      gloss: typical ? "typical here" : null,
      aside: count(facts),
    }));
  }
}

/** The question in words, as a line: France — borders — ? */
export function inWords({ head, relation, tail, ask }) {
  const part = asked({ head, relation, tail, ask });
  return PARTS.map((each) => (each === part ? "?" : { head, relation, tail }[each])).join(" — ");
}

/** What stands in the place of answers while parts are missing. */
export function unasked(missing) {
  const title = `Choose a ${missing.join(" and a ")}`;
  say(title);
  return empty(title, el("p", {}, "Fill in two of the three, or take an example above."));
}

/** A link that asks a question. */
export function chip(question, model) {
  const { head, relation, tail, ask } = question;
  const to = address({
    model,
    head: head ?? undefined,
    relation: relation ?? undefined,
    tail: tail ?? undefined,
    ask,
  });
  return el("a", { class: "chip", href: to }, inWords(question));
}
