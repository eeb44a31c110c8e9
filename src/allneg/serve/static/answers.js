/** The ranked answers as a table. */

import { address, unknownPart, go, state } from "./address.js";
import { el } from "./dom.js";
import { nameLink, short } from "./names.js";
import * as numbers from "./numbers.js";

/** @param {any} here the state @param {any} data the response of the service */
export function answersTable(here, data) {
  const part = unknownPart(here);
  const key = part === "relation" ? "relation" : "entity";
  const calibrated = data.answers.every((item) => item.calibrated !== null);
  const columns = [
    "#",
    part,
    "score",
    "softmax share",
    calibrated && "calibrated probability",
    "",
    "",
  ];
  const rows = data.answers.map((item) => row(here, part, item, item[key], calibrated));
  return el(
    "table",
    { class: "ranked", role: "table" },
    el("caption", { class: "unseen" }, "Answers, best first"),
    el(
      "thead",
      { role: "rowgroup" },
      el("tr", { role: "row" }, columns.filter((item) => item !== false).map(heading)),
    ),
    el("tbody", { role: "rowgroup" }, rows),
  );
}

/** Whether a fact is known from a split, or new. */
export function badge(known) {
  return el("span", { class: `badge ${known ?? "new"}` }, known ? `known-${known}` : "new");
}

function heading(text) {
  const number = ["#", "score", "softmax share", "calibrated probability"].includes(text);
  const hidden = text === "" ? el("span", { class: "unseen" }, "more") : text;
  return el("th", { scope: "col", role: "columnheader", class: number && "number" }, hidden);
}

function row(here, part, answer, name, calibrated) {
  const link =
    part === "relation"
      ? address({ model: here.model, head: here.head, relation: name })
      : address({ view: "entity", model: here.model, name });
  const ask = () => {
    const now = state();
    go({ ...now, why: now.why === name ? undefined : name });
  };
  return el(
    "tr",
    { role: "row", "data-answer": name, class: name === here[part] && "right" },
    el("td", { class: "number rank", role: "cell" }, answer.rank),
    el(
      "th",
      { scope: "row", role: "rowheader", class: "name" },
      nameLink(name, link),
      answer.label && el("small", {}, answer.label),
    ),
    cell("score", numbers.score(answer.score)),
    cell("share", numbers.share(answer.share), !calibrated && bar(answer.share)),
    calibrated && cell("calibrated", numbers.share(answer.calibrated), bar(answer.calibrated)),
    el("td", { role: "cell", class: "mark" }, badge(answer.known)),
    el(
      "td",
      { role: "cell", class: "act" },
      el(
        "button",
        { type: "button", class: "why", "aria-expanded": "false", onclick: ask },
        "Why?",
        el("span", { class: "unseen" }, ` ${short(name)}`),
      ),
    ),
  );
}

function cell(label, ...children) {
  return el("td", { class: "number", role: "cell", "data-label": label }, children);
}

/** A bar for a number from 0 to 1. */
export function bar(value) {
  const inner = el("span");
  inner.style.width = `${Math.max(0, Math.min(1, value)) * 100}%`;
  return el("span", { class: "bar", "aria-hidden": "true" }, inner);
}
