/** Curves over the epochs, one line per run. */

import { el, svg } from "./dom.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM, EDGE] = [480, 220, 52, 28, 10];
const N_STYLES = 9; // different line styles

/**
 * @param {{ model: string, curves: any[] }[]} runs with one entry per epoch
 * @param {string} field what is drawn
 * @param {string} name
 */
export function curves(runs, field, name) {
  const lines = runs
    .map(({ model, curves: entries }, i) => ({
      model,
      look: `run-${i % N_STYLES}`,
      points: entries
        .filter((item) => Number.isFinite(item[field]))
        .map((item) => [item.epoch, item[field]]),
    }))
    .filter(({ points }) => points.length > 0);
  if (lines.length === 0) return el("p", { class: "muted no-curve" }, `No ${name} was recorded.`);
  const drawn = drawing(lines, name);
  return lines.length > 1 ? [drawn, legend(lines)] : drawn;
}

function drawing(lines, name) {
  const all = lines.flatMap(({ points }) => points);
  const [xs, ys] = [0, 1].map((i) => all.map((point) => point[i]));
  const [first, last] = [Math.min(...xs), Math.max(...xs)];
  const ticks = steps(Math.min(...ys), Math.max(...ys));
  const [low, high] = [Math.min(ticks[0], ...ys), Math.max(ticks[ticks.length - 1], ...ys)];
  const x = (epoch) => LEFT + ((epoch - first) / Math.max(1, last - first)) * (WIDTH - LEFT - EDGE);
  const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low)) * (HEIGHT - BOTTOM - EDGE);
  const label = `${name} by epoch: ${lines.map((line) => describe(line, lines.length > 1)).join("; ")}`;
  return svg(
    "svg",
    { class: "curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
    ticks.map((tick) => [
      svg("line", { class: "grid", x1: LEFT, x2: WIDTH - EDGE, y1: y(tick), y2: y(tick) }),
      svg("text", { x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, String(tick)),
    ]),
    [...new Set([first, last])].map((epoch) =>
      svg(
        "text",
        {
          x: x(epoch),
          y: HEIGHT - 8,
          "text-anchor": epoch === first && last > first ? "start" : "end",
        },
        `epoch ${epoch}`,
      ),
    ),
    lines.map(({ model, look, points }) => [
      svg("polyline", {
        class: `line ${look}`,
        "data-run": model,
        points: points.map(([e, v]) => `${x(e).toFixed(1)},${y(v).toFixed(1)}`).join(" "),
      }),
      points.length < 40 &&
        points.map(([e, v]) =>
          svg(
            "circle",
            { class: `dot ${look}`, cx: x(e), cy: y(v), r: 3 },
            svg("title", {}, `${lines.length > 1 ? `${model}, ` : ""}epoch ${e}: ${v}`),
          ),
        ),
    ]),
  );
}

function describe({ model, points }, named) {
  const [[first, start], [last, end]] = [points[0], points[points.length - 1]];
  const from = `from ${start.toPrecision(3)} in epoch ${first} to ${end.toPrecision(3)} in epoch ${last}`;
  return named ? `${model} ${from}` : from;
}

function legend(lines) {
  return el(
    "ul",
    { class: "legend curve-legend", "aria-label": "Runs" },
    lines.map(({ model, look }) =>
      el(
        "li",
        {},
        svg(
          "svg",
          { class: "sample", viewBox: "0 0 28 8", "aria-hidden": "true" },
          svg("line", { class: `line ${look}`, x1: 0, x2: 28, y1: 4, y2: 4 }),
        ),
        model,
      ),
    ),
  );
}

/** Four or five round numbers that span two values. */
function steps(low, high) {
  if (high === low) [low, high] = [low - 0.5, high + 0.5];
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((item) => item * power).find((item) => item >= rough);
  const found = [];
  for (let i = Math.floor(low / step); i <= Math.ceil(high / step); i += 1)
    found.push(Number((i * step).toPrecision(6)));
  return found;
}
