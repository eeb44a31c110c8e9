/** A list of facts to decide on, one key per fact; decisions stay in this browser. */

import { address } from "./address.js";
import { bar } from "./answers.js";
import { announce, el, put } from "./dom.js";
import { entityLink, short } from "./names.js";
import * as numbers from "./numbers.js";

const STEPS = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 };

/**
 * @param {Object} about
 * @param {string} about.store where decisions are kept, with the name of the data
 * @param {{ name: string, done: string, key: string }[]} about.verbs what can be decided
 * @param {string[]} about.columns between the fact and the buttons
 * @param {(fact: any) => any[]} about.cells one per column
 */
export function review({ store, verbs, columns, cells }) {
  let kept = decisions(store, "");
  let model = "";
  let rows = [];
  let current = null;
  const body = el("tbody", { role: "rowgroup" });
  const totals = el("div", { class: "totals", role: "group", "aria-label": "Decisions" });
  const headings = ["fact", ...columns, "decision"];
  const table = el(
    "table",
    { class: "review", role: "grid", "aria-label": "Facts" },
    el(
      "thead",
      { role: "rowgroup" },
      el(
        "tr",
        { role: "row" },
        headings.map((text) => el("th", { scope: "col", role: "columnheader" }, text)),
      ),
    ),
    body,
  );
  const keys = verbs.map(({ name, key }) => [el("kbd", {}, key), ` ${name}s a fact, `]);
  const help = el(
    "p",
    { class: "muted keys" },
    ...[el("kbd", {}, "j"), " and ", el("kbd", {}, "k"), " or arrows move, "],
    ...[keys, "the same key again takes it back."],
  );

  /** Only the controls of the current row are reached with Tab. */
  function choose(row, { focus = true } = {}) {
    reach(current, "-1");
    reach(row, "0");
    current = row;
    if (focus) row.focus();
  }

  function decide(row, verb) {
    const fact = row.fact;
    const taken = kept.get(fact) === verb.name ? null : verb.name;
    kept.set(fact, taken);
    mark(row);
    drawTotals();
    announce(taken ? `${verb.done}: ${text(fact)}` : `Undecided: ${text(fact)}`);
    if (!kept.stored) announce("This browser keeps no decisions; download them before you leave");
    return taken;
  }

  function mark(row) {
    const decision = kept.get(row.fact);
    if (decision) row.dataset.decision = decision;
    else delete row.dataset.decision;
    for (const button of row.querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(button.value === decision));
  }

  function drawRow(fact, labels) {
    const buttons = verbs.map((verb) =>
      el(
        "button",
        {
          type: "button",
          class: `button verb ${verb.key}`,
          value: verb.name,
          onclick: () => (choose(row, { focus: false }), decide(row, verb)),
        },
        capital(verb.name),
        el("span", { class: "unseen" }, ` ${text(fact)}`),
      ),
    );
    const query = { model, head: fact.head, relation: fact.relation };
    const row = el(
      "tr",
      { role: "row" },
      el(
        "th",
        { scope: "row", role: "rowheader", class: "name" },
        el("span", { class: "triple" }, end(fact.head, labels), " ", relation(fact), " ", end(fact.tail, labels)),
        " ",
        el("a", { class: "reasons", href: address({ ...query, why: fact.tail }) }, "Why?"),
      ),
      cells(fact).map((cell, i) =>
        el("td", { role: "gridcell", "data-label": columns[i] }, cell),
      ),
      el("td", { role: "gridcell", class: "verbs" }, buttons),
    );
    row.fact = fact;
    mark(row);
    reach(row, "-1");
    return row;
  }

  const end = (name, labels) => [
    entityLink(model, name),
    labels[name] && el("small", {}, labels[name]),
  ];

  function drawTotals() {
    put(
      totals,
      verbs.map((verb) => {
        const facts = kept.all(verb.name);
        return el(
          "button",
          {
            type: "button",
            class: "button",
            disabled: facts.length === 0,
            onclick: () => download(facts, `${verb.done.toLowerCase()}.tsv`),
          },
          `Download ${numbers.count(facts.length)} ${verb.done.toLowerCase()}`,
        );
      }),
    );
  }

  function onkeydown(event) {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, select")) return;
    const at = rows.indexOf(target.closest("tr"));
    const verb = verbs.find((item) => item.key === key);
    if (verb && at >= 0) {
      const taken = decide(rows[at], verb);
      if (taken && rows[at + 1]) choose(rows[at + 1]);
    } else if (STEPS[key] && (at >= 0 || key.length === 1) && rows.length) {
      choose(rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + STEPS[key]))]);
    } else return;
    event.preventDefault();
  }

  return {
    onkeydown,
    totals,
    /** The table of facts of a run; `undecided` leaves out those with a decision. */
    table(card, { facts, labels }, undecided) {
      model = card.id;
      kept = decisions(store, card.data);
      const shown = facts.filter((fact) => !(undecided && kept.get(fact)));
      rows = shown.map((fact) => drawRow(fact, labels));
      put(body, rows);
      drawTotals();
      current = null;
      if (rows.length) choose(rows[0], { focus: false });
      return rows.length > 0 && [help, table];
    },
  };
}

/** Let Tab reach a row and its controls (0) or not (-1). */
function reach(row, index) {
  for (const item of row ? [row, ...row.querySelectorAll("a, button")] : [])
    item.setAttribute("tabindex", index);
}

function relation(fact) {
  return el("span", { class: "muted", title: fact.relation }, short(fact.relation));
}

/** A number from 0 to 1 with a bar below. */
export function probability(value) {
  return [numbers.share(value), bar(value)];
}

/** What was decided about the facts of some data, kept in this browser where it allows that. */
function decisions(store, data) {
  const name = `allneg/${store}/${data}`;
  const key = ({ head, relation: link, tail }) => JSON.stringify([head, link, tail]);
  let kept = new Map();
  let stored = true;
  try {
    kept = new Map(JSON.parse(localStorage.getItem(name) ?? "[]"));
  } catch {
    stored = false;
  }
  return {
    get stored() {
      return stored;
    },
    get: (fact) => kept.get(key(fact)),
    all: (decision) =>
      [...kept].filter(([, taken]) => taken === decision).map(([fact]) => JSON.parse(fact)),
    set(fact, decision) {
      if (decision) kept.set(key(fact), decision);
      else kept.delete(key(fact));
      try {
        localStorage.setItem(name, JSON.stringify([...kept]));
      } catch {
        stored = false;
      }
    },
  };
}

/** Save facts as lines of head, tab, relation, tab, tail. */
function download(facts, file) {
  // A tab or a line end in a name would change the columns.
  const plain = facts.filter((fact) => !fact.some((name) => /[\t\n\r]/.test(name)));
  const lines = plain.map((fact) => `${fact.join("\t")}\n`);
  const href = URL.createObjectURL(new Blob(lines, { type: "text/tab-separated-values" }));
  el("a", { href, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
  const left = facts.length - plain.length;
  announce(
    `${file}: ${numbers.count(plain.length)} facts` +
      (left ? `; ${numbers.count(left)} with a tab or a line end in a name are left out` : ""),
  );
}

function text({ head, relation: link, tail }) {
  return [head, link, tail].map(short).join(" ");
}

function capital(word) {
  return word.charAt(0).toUpperCase() + word.slice(1);
}
