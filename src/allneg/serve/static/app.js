/** Load the list of models, then show the view that the address names. */

import { address, follow, go, state } from "./address.js";
import { ask } from "./ask.js";
import { compare } from "./compare.js";
import { el, put } from "./dom.js";
import { entity } from "./entity.js";
import { hops, withHop } from "./hops.js";
import { map } from "./map.js";
import { missing } from "./missing.js";
import { count } from "./numbers.js";
import { skeleton, errorMessage } from "./loading.js";
import { quality } from "./quality.js";
import { get, ServiceError } from "./service.js";
import { suspicious } from "./suspicious.js";

const VIEWS = { ask, hops, entity, compare, quality, map, missing, suspicious };
const TABS = {
  ask: "Ask",
  hops: "Multi-hop",
  entity: "Entity",
  compare: "Compare",
  quality: "Quality",
  map: "Map",
  missing: "Missing facts",
  suspicious: "Suspicious facts",
};
const page = /** @type {HTMLElement} */ (document.getElementById("page"));
const tabs = document.getElementById("tabs");
const chooser = document.getElementById("models");

let about = null; // the response of /v1/models
let shown = { name: "", view: null };
let running = new AbortController();

async function start() {
  put(
    page,
    el(
      "div",
      { class: "view" },
      el("div", { class: "card" }, skeleton(3)),
      el("div", { class: "card" }, skeleton(11)),
    ),
  );
  drawTabs(state());
  follow(render);
  document.addEventListener("keydown", (event) => shown.view?.onkeydown?.(event));
  await render();
}

async function render() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  try {
    about ??= await get("/v1/models");
    if (signal.aborted) return;
    show(signal);
  } catch (error) {
    if (signal.aborted) return;
    shown = { name: "", view: null };
    put(page, el("h1", { class: "unseen", tabindex: "-1" }, "Error"), errorMessage(error, render));
  }
}

function show(signal) {
  const here = state();
  if (!here.model) {
    // Start with the first model and its first example.
    const model = about.models[0].id;
    const asks = !here.view && !here.head && !here.relation && !here.tail;
    const example = asks ? (about.examples[model] ?? [])[0] : {};
    go({ ...here, ...clean(example), model }, { replace: true });
    return;
  }
  if (!about.models.some((item) => item.id === here.model)) {
    throw new ServiceError(
      "unknown_model",
      `No model is called '${here.model}'.`,
      about.models.map((item) => item.id),
    );
  }
  const name = Object.hasOwn(VIEWS, here.view ?? "ask") ? (here.view ?? "ask") : "ask";
  drawTabs({ ...here, view: name });
  drawModels(here);
  if (shown.name !== name) {
    const first = shown.name === "";
    shown = { name, view: VIEWS[name](about) };
    put(page, shown.view.element);
    if (!first) {
      scrollTo(0, 0);
      page.querySelector("h1")?.focus({ preventScroll: true });
    }
  }
  document.title = `${shown.view.title(here)} · allneg explorer`;
  shown.view.update(here, signal);
}

function drawTabs(here) {
  const { model, other, head, relation, tail } = here;
  const name = here.name ?? head ?? tail;
  const query = here.view === "map" ? {} : { head, relation, tail, ask: here.ask };
  const targets = {
    ask: { model, ...query },
    hops: { view: "hops", model, question: here.question ?? firstHop(query) },
    entity: { view: "entity", model, name },
    compare: { view: "compare", model, other, ...query },
    quality: { view: "quality", model },
    map: { view: "map", model, name: here.view === "entity" ? here.name : undefined },
    missing: { view: "missing", model, relation: query.relation },
    suspicious: { view: "suspicious", model },
  };
  const links = Object.entries(TABS).map(([view, text]) => {
    const current = view === (here.view ?? "ask");
    return el(
      "li",
      {},
      el("a", { href: address(targets[view]), "aria-current": current && "page" }, text),
    );
  });
  put(tabs, links);
}

/** A query as the first hop of a question. */
function firstHop({ head, relation, tail }) {
  const hop = { from: head ?? "?x", relation, to: head ? "" : tail };
  return relation && (head || tail) ? withHop("", hop) : undefined;
}

function drawModels(here) {
  const model = about.models.find((item) => item.id === here.model);
  const sizes = `${count(model.entities)} entities, ${count(model.relations)} relations`;
  const quality =
    model.mrr === null || model.mrr === undefined ? "" : `, MRR ${model.mrr.toFixed(3)}`;
  const options = about.models.map((item) =>
    el("option", { value: item.id, selected: item.id === here.model }, item.id),
  );
  const change = (event) =>
    go({ ...state(), why: undefined, at: undefined, model: event.target.value });
  put(
    chooser,
    about.models.length > 1
      ? el("select", { "aria-label": "Model", onchange: change }, options)
      : el("b", {}, model.id),
    el(
      "span",
      { class: "muted model-card" },
      `${model.model}, dim ${model.dim}, on ${model.data}: ${sizes}${quality}`,
    ),
  );
}

function clean(example) {
  return Object.fromEntries(Object.entries(example ?? {}).filter(([, value]) => value));
}

start();
