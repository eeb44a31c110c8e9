/** Copies of the answers: as TSV, JSON, or the same query in Python. */

import { unknownPart } from "./address.js";
import { el, announce } from "./dom.js";

export function copyButtons(here, data) {
  const kinds = { TSV: () => tsv(data), JSON: () => json(data), Python: () => python(here) };
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

/** A header line, then one line per answer. */
export function tsv(data) {
  const { head, relation, tail } = data.question;
  const columns = [
    "rank",
    "head",
    "relation",
    "tail",
    "score",
    "share",
    "calibrated",
    "known",
  ];
  const lines = data.answers.map((item) => {
    const facts = {
      head: head ?? item.entity,
      relation: relation ?? item.relation,
      tail: tail ?? item.entity,
      ...item,
      known: item.known ?? "new",
    };
    return columns
      .map((column) => plain(column === "relation" ? (relation ?? item.relation) : facts[column]))
      .join("\t");
  });
  return [columns.join("\t"), ...lines, ""].join("\n");
}

export function json(data) {
  return `${JSON.stringify({ question: data.question, answers: data.answers }, null, 2)}\n`;
}

function python(here) {
  const { model, head, relation, tail } = here;
  const k = Number(here.k ?? 10);
  const options = `k=${k}${here.fresh ? ", new=True" : ""}`;
  const quote = (text) => JSON.stringify(text);
  const calls = {
    tail: () => `tails(${quote(head)}, ${quote(relation)}, ${options})`,
    head: () => `heads(${quote(tail)}, ${quote(relation)}, ${options})`,
    relation: () => `relations(${quote(head)}, ${quote(tail)}, ${options})`,
  };
  const part = unknownPart(here);
  return [
    "import allneg",
    "",
    `predictor = allneg.load(${quote(model)})  # the run's folder`,
    `for answer in predictor.${calls[part]()}:`,
    `    print(answer.${part === "relation" ? "relation" : "entity"}, answer.score, answer.share, answer.known)`,
    "",
  ].join("\n");
}

function plain(value) {
  return value === null || value === undefined ? "" : String(value).replace(/[\t\n\r]/g, " ");
}

async function copy(button, name, text) {
  const done = await written(text);
  announce(done ? `Copied as ${name}` : "The browser did not allow copying");
  button.textContent = done ? "Copied" : "Failed";
  setTimeout(() => (button.textContent = name), 1200);
}

async function written(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages from another machine may not use the clipboard; copying a selection works there.
    const field = el("textarea", { class: "unseen", "aria-hidden": "true" }, text);
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}
