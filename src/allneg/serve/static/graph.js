/** A small graph, drawn: known edges solid, predicted edges dashed. */

import { address } from "./address.js";
import { el, svg } from "./dom.js";
import { short } from "./names.js";

const HEIGHT = 400;
const ROUNDS = 240;

/** @param {{ nodes: any[], edges: any[] }} graph @param {string} centre @param {string} model */
export function neighbourhood(graph, centre, model) {
  const container = el("div", { class: "drawn" });
  let width = 0;
  // Drawn at its actual size, so that the text is not scaled.
  new ResizeObserver(() => {
    if (Math.abs(container.clientWidth - width) < 8) return;
    width = container.clientWidth;
    container.replaceChildren(draw(graph, centre, model, width));
  }).observe(container);
  const solid = graph.edges.some((edge) => !edge.predicted);
  const dashed = graph.edges.some((edge) => edge.predicted);
  return [
    container,
    el(
      "p",
      { class: "legend" },
      solid && key("known", "known"),
      dashed && key("predicted", "predicted, not known"),
    ),
    el(
      "details",
      {},
      el("summary", {}, "Show as a list"),
      el(
        "ul",
        { class: "plain" },
        graph.edges.map((edge) =>
          el(
            "li",
            {},
            [edge.head, edge.relation, edge.tail].map(short).join(" — "),
            edge.predicted && " (predicted)",
          ),
        ),
      ),
    ),
  ];
}

/** A line of the legend. */
export function key(kind, text) {
  const line = svg("path", { class: `edge ${kind}`, d: "M0 5 H28" });
  return el(
    "span",
    {},
    svg("svg", { width: 28, height: 10, "aria-hidden": "true" }, line),
    ` ${text}`,
  );
}

function draw(graph, centre, model, width) {
  const small = width < 480;
  const at = layout(graph, centre, width, HEIGHT, small ? 44 : 70);
  const longest = small ? 12 : 20;
  const edges = graph.edges.filter((edge) => at.has(edge.head) && at.has(edge.tail));
  const lines = joined(edges).map(({ ends: [a, b], predicted, bent, words }) => {
    const d = arc(at.get(a), at.get(b), bent ? 16 : 0);
    return svg(
      "g",
      { class: "link" },
      svg("path", { class: `edge ${predicted ? "predicted" : "known"}`, d }),
      svg("path", { class: "touch", d }, svg("title", {}, words.join("\n"))),
    );
  });
  const nodes = graph.nodes
    .filter((node) => at.has(node.name))
    .map((node) => {
      const { x, y } = at.get(node.name);
      const own = node.name === centre;
      return svg(
        "a",
        {
          href: address({ view: "entity", model, name: node.name }),
          class: `node${own ? " own" : ""}`,
        },
        svg("title", {}, short(node.name), node.label && ` (${node.label})`),
        svg("circle", { cx: x, cy: y, r: own ? 9 : 6 }),
        svg(
          "text",
          { x, y: y + (own ? 24 : 20), "text-anchor": "middle" },
          cut(node.label ?? node.name, longest),
        ),
        !own &&
          !small &&
          svg(
            "text",
            { class: "edge-name", x, y: y + 34, "text-anchor": "middle" },
            relations(edges, node.name, centre),
          ),
      );
    });
  const label = `${short(centre)} and ${graph.nodes.length - 1} entities around it`;
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "group", "aria-label": label },
    lines,
    nodes,
  );
}

/** One line for all known edges between two nodes, and one beside it for the predicted ones. */
function joined(edges) {
  const found = new Map();
  for (const edge of edges) {
    const ends = [edge.head, edge.tail].sort();
    const key = JSON.stringify([ends, edge.predicted]);
    if (!found.has(key)) found.set(key, { ends, predicted: edge.predicted, words: [] });
    found
      .get(key)
      .words.push(
        [edge.head, edge.relation, edge.tail].map(short).join(" ") +
          (edge.predicted ? " (predicted)" : ""),
      );
  }
  const bent = ({ ends, predicted }) => predicted && found.has(JSON.stringify([ends, false]));
  return [...found.values()].map((line) => ({ ...line, bent: bent(line) }));
}

/** A path from a to b, bent to one side by `bend` pixels. */
export function arc(a, b, bend) {
  const far = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const [x, y] = [
    (a.x + b.x) / 2 - (bend * (b.y - a.y)) / far,
    (a.y + b.y) / 2 + (bend * (b.x - a.x)) / far,
  ];
  return `M${a.x} ${a.y} Q${x} ${y} ${b.x} ${b.y}`;
}

/** The first relation between a node and the centre, and the number of further ones. */
function relations(edges, name, centre) {
  const own = edges.filter(
    ({ head, tail }) => (head === name && tail === centre) || (head === centre && tail === name),
  );
  const [first = "", ...more] = new Set(own.map((edge) => edge.relation));
  return cut(first, 22) + (more.length ? ` +${more.length}` : "");
}

/** Positions that keep nodes apart and edges short; always the same for the same graph. */
function layout({ nodes, edges }, centre, width, height, margin) {
  const at = new Map();
  const others = nodes.filter((node) => node.name !== centre);
  at.set(centre, { x: 0, y: 0 });
  others.forEach((node, i) => {
    const angle = (2 * Math.PI * i) / others.length;
    const ring = 0.8 + 0.2 * (i % 2);
    at.set(node.name, { x: ring * Math.cos(angle), y: ring * Math.sin(angle) });
  });
  const names = [...at.keys()];
  for (let round = 0; round < ROUNDS; round += 1) {
    const step = 0.06 * (1 - round / ROUNDS);
    const push = new Map(names.map((name) => [name, { x: 0, y: 0 }]));
    for (let i = 0; i < names.length; i += 1) {
      for (let j = i + 1; j < names.length; j += 1)
        apart(at.get(names[i]), at.get(names[j]), push.get(names[i]), push.get(names[j]));
    }
    for (const { head, tail } of edges) {
      if (head !== tail && at.has(head) && at.has(tail))
        together(at.get(head), at.get(tail), push.get(head), push.get(tail));
    }
    for (const name of names) {
      if (name === centre) continue;
      const [p, f] = [at.get(name), push.get(name)];
      const size = Math.hypot(f.x, f.y) || 1;
      p.x += (f.x / size) * Math.min(size, 1) * step;
      p.y += (f.y / size) * Math.min(size, 1) * step;
    }
  }
  return fitted(at, width, height, margin);
}

function apart(a, b, pushA, pushB) {
  const [dx, dy] = [a.x - b.x, a.y - b.y];
  const force = 0.12 / Math.max(dx * dx + dy * dy, 0.01);
  pushA.x += dx * force;
  pushA.y += dy * force;
  pushB.x -= dx * force;
  pushB.y -= dy * force;
}

function together(a, b, pushA, pushB) {
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const force = 0.5 * (Math.hypot(dx, dy) - 0.6);
  pushA.x += dx * force;
  pushA.y += dy * force;
  pushB.x -= dx * force;
  pushB.y -= dy * force;
}

function fitted(at, width, height, margin) {
  const [xs, ys] = [[...at.values()].map((p) => p.x), [...at.values()].map((p) => p.y)];
  const scale = (values, from, to) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return (value) =>
      high > low ? from + ((value - low) / (high - low)) * (to - from) : (from + to) / 2;
  };
  const [x, y] = [scale(xs, margin, width - margin), scale(ys, 20, height - 44)];
  return new Map([...at].map(([name, p]) => [name, { x: x(p.x), y: y(p.y) }]));
}

/** A text without its end if it is long. */
export function cut(text, longest) {
  return text.length > longest ? `${text.slice(0, longest - 1)}…` : text;
}
