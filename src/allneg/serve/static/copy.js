/** The answers, to take along: as TSV, JSON, or the Python that asks the same. */

import { asked } from "./address.js";
import { el, say } from "./dom.js";

export function copyButtons(here, said) {
  const kinds = { TSV: () => tsv(said), JSON: () => json(said), Python: () => python(here) };
  return el(
    "span",
    { class: "copies", role: "group", "aria-label": "Copy the answers" },
    el("span", { class: "muted", "aria-hidden": "true" }, "Copy as"),
    Object.entries(kinds).map(([name, text]) =>
      el(
        "button",
        {
          type: "button",
          class: "button quiet",
          "aria-label": `Copy as ${name}`,
          onclick: (event) => copy(event.currentTarget, name, text()),
        },
        name,
      ),
    ),
  );
}

/** A line of names, then one a line for every answer. */
export function tsv(said) {
  const { head, relation, tail } = said.question;
  const columns = [
    "rank",
    "head",
    "relation",
    "tail",
    "score",
    "probability",
    "calibrated",
    "known",
  ];
  const lines = said.answers.map((each) => {
    const facts = {
      head: head ?? each.entity,
      relation: relation ?? each.relation,
      tail: tail ?? each.entity,
      ...each,
      known: each.known ?? "new",
    };
    return columns
      .map((column) => plain(column === "relation" ? (relation ?? each.relation) : facts[column]))
      .join("\t");
  });
  return [columns.join("\t"), ...lines, ""].join("\n");
}

export function json(said) {
  return `${JSON.stringify({ question: said.question, answers: said.answers }, null, 2)}\n`;
}

export function python(here) {
  const { model, head, relation, tail } = here;
  const k = Number(here.k ?? 10);
  const options = `k=${k}${here.fresh ? ", new=True" : ""}`;
  const quote = (text) => JSON.stringify(text);
  const calls = {
    tail: () => `tails(${quote(head)}, ${quote(relation)}, ${options})`,
    head: () => `heads(${quote(tail)}, ${quote(relation)}, ${options})`,
    relation: () => `relations(${quote(head)}, ${quote(tail)}, ${options})`,
  };
  const part = asked(here);
  return [
    "import allneg",
    "",
    `predictor = allneg.load(${quote(model)})  # the run's folder`,
    `for answer in predictor.${calls[part]()}:`,
    `    print(answer.${part === "relation" ? "relation" : "entity"}, answer.score, answer.probability, answer.known)`,
    "",
  ].join("\n");
}

function plain(value) {
  return value === null || value === undefined ? "" : String(value).replace(/[\t\n\r]/g, " ");
}

async function copy(button, name, text) {
  const done = await written(text);
  say(done ? `Copied as ${name}` : "The browser did not let the page copy");
  button.textContent = done ? "Copied" : "No";
  setTimeout(() => (button.textContent = name), 1200);
}

async function written(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages that do not come from this machine have no clipboard; a selection does it there.
    const field = el("textarea", { class: "unseen", "aria-hidden": "true" }, text);
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}
