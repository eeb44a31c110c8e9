/** The facts that an answer rests on, as a small graph: known edges solid, inferred ones dashed. */

import { address } from "./address.js";
import { el, svg } from "./dom.js";
import { arc, cut } from "./graph.js";
import { short } from "./names.js";

const COLUMN = 150; // pixels between two hops; with less, the graph runs from top to bottom
const [ROW, TALL] = [76, 100]; // pixels between two entities above each other
const [LETTER, LINE] = [6.5, 13]; // pixels of a text

/** @param {any} answer @param {Record<string, string>} labels @param {string} model */
export function derivation(answer, labels, model) {
  const container = el("div", { class: "derivation" });
  let width = 0;
  // Drawn at its actual size, so that the text is not scaled.
  new ResizeObserver(() => {
    if (Math.abs(container.clientWidth - width) < 8) return;
    width = container.clientWidth;
    container.replaceChildren(draw(answer, labels, model, width));
  }).observe(container);
  return container;
}

function draw({ entity, steps }, labels, model, width) {
  const layers = layersOf(entity, steps);
  const widest = Math.max(...layers.map((layer) => layer.length));
  const across = width >= COLUMN * layers.length;
  const height = across ? ROW * widest : TALL * layers.length;
  const room = across ? width / layers.length : width / widest;
  const at = new Map();
  layers.forEach((layer, i) =>
    layer.forEach((name, j) => {
      const [far, beside] = [(i + 0.5) / layers.length, (j + 0.5) / layer.length];
      const [x, y] = across ? [far, beside] : [beside, far];
      at.set(name, { x: x * width, y: y * height - 8 }); // the name is below
    }),
  );
  const longest = Math.max(6, Math.floor(room / 8));
  const shown = (name) => cut(labels[name] ?? name, longest);
  const texts = [...at].map(([name, { x, y }]) => ({ x, y: y + 20, text: shown(name) }));
  const nodes = [...at].map(([name, { x, y }]) =>
    svg(
      "a",
      {
        href: address({ view: "entity", model, name }),
        class: `node${name === entity ? " own" : ""}`,
      },
      svg("title", {}, short(name), labels[name] && ` (${labels[name]})`),
      svg("circle", { cx: x, cy: y, r: 6 }),
      svg("text", { x, y: y + 20, "text-anchor": "middle" }, shown(name)),
    ),
  );
  return svg(
    "svg",
    {
      ...{ viewBox: `0 0 ${width} ${height}`, width, height },
      ...{ role: "group", "aria-label": steps.map(inWords).join("; ") },
    },
    bends(steps).map(({ step, bend }) => edge(step, at.get(step.head), at.get(step.tail), bend, longest, texts)),
    nodes,
  );
}

/** Names by their distance from the answer, the farthest first. */
function layersOf(entity, steps) {
  const layers = [[entity]];
  const left = new Set(steps.flatMap(({ head, tail }) => [head, tail]));
  left.delete(entity);
  while (left.size) {
    const last = layers[0];
    const near = steps.flatMap(({ head, tail }) =>
      last.includes(head) ? [tail] : last.includes(tail) ? [head] : [],
    );
    const layer = [...new Set(near)].filter((name) => left.has(name));
    layers.unshift(layer.length ? layer : [...left]); // an alternative may have separate parts
    for (const name of layers[0]) left.delete(name);
  }
  return layers;
}

/** The distinct steps; those between the same two entities are bent apart. */
function bends(steps) {
  const seen = new Map();
  const distinct = new Map(steps.map((step) => [JSON.stringify(step), step]));
  return [...distinct.values()].map((step) => {
    const ends = JSON.stringify([step.head, step.tail].sort());
    const number = seen.get(ends) ?? 0;
    seen.set(ends, number + 1);
    const bend = 40 * Math.ceil(number / 2) * (number % 2 ? 1 : -1);
    return { step, bend: step.head < step.tail ? bend : -bend };
  });
}

function edge(step, a, b, bend, longest, texts) {
  const loop = step.head === step.tail;
  const d = loop
    ? `M${a.x} ${a.y} C${a.x - 40} ${a.y - 40} ${a.x + 40} ${a.y - 40} ${a.x} ${a.y}`
    : arc(a, b, bend);
  const far = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const [dx, dy] = [(b.x - a.x) / far, (b.y - a.y) / far];
  const middle = {
    x: (a.x + b.x) / 2 - (bend / 2) * dy,
    y: (a.y + b.y) / 2 + (bend / 2) * dx - (loop ? 30 : 0),
  };
  const kind = step.negated ? "negated" : step.known ? "known" : "predicted";
  const name = cut(`${step.negated ? "not " : ""}${step.relation}`, longest);
  const label = beside(texts, middle, `${name} ${step.probability.toFixed(2)}`);
  return svg(
    "g",
    { class: "link" },
    svg("path", { class: `edge ${kind}`, d }),
    !loop && arrow(middle, a, b),
    svg("path", { class: "touch", d }, svg("title", {}, inWords(step))),
    svg(
      "text",
      { class: "edge-name", x: label.x, y: label.y, "text-anchor": "middle" },
      label.text,
    ),
  );
}

/** A text near a point, above or below, where it covers no other if there is room; it is kept. */
function beside(texts, { x, y }, text) {
  const covers = (other, at) =>
    Math.abs(other.y - at) < LINE && Math.abs(other.x - x) * 2 < LETTER * (other.text.length + text.length);
  const places = [y - 8, y + 17, y + 30, y - 21];
  const free = places.find((at) => !texts.some((other) => covers(other, at))) ?? places[0];
  texts.push({ x, y: free, text });
  return texts.at(-1);
}

/** A triangle at the middle of a line, from head to tail. */
function arrow(middle, a, b) {
  const angle = (Math.atan2(b.y - a.y, b.x - a.x) * 180) / Math.PI;
  const transform = `translate(${middle.x} ${middle.y}) rotate(${angle})`;
  return svg("path", { class: "arrow", d: "M-4 -4 L5 0 L-4 4 Z", transform });
}

function inWords({ head, relation, tail, probability, known, negated }) {
  const fact = [head, relation, tail].map(short).join(" ");
  const from = !known ? "inferred" : negated ? `but ${known} has this fact` : `known from ${known}`;
  return `${negated ? "not: " : ""}${fact} (${probability.toFixed(2)}, ${from})`;
}
