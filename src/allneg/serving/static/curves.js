/** A curve over the epochs. */

import { el, svg } from "./dom.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM, EDGE] = [480, 220, 52, 28, 10];

/** @param {any[]} entries one an epoch @param {string} field what is drawn @param {string} name */
export function curve(entries, field, name) {
  const points = entries
    .filter((each) => Number.isFinite(each[field]))
    .map((each) => [each.epoch, each[field]]);
  if (points.length === 0) return el("p", { class: "muted no-curve" }, `No ${name} was noted.`);
  const ys = points.map(([, y]) => y);
  const [first, last] = [points[0][0], points[points.length - 1][0]];
  const ticks = steps(Math.min(...ys), Math.max(...ys));
  const [low, high] = [Math.min(ticks[0], ...ys), Math.max(ticks[ticks.length - 1], ...ys)];
  const x = (epoch) => LEFT + ((epoch - first) / Math.max(1, last - first)) * (WIDTH - LEFT - EDGE);
  const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low)) * (HEIGHT - BOTTOM - EDGE);
  const end = points[points.length - 1][1];
  const told = `${name} by epoch: from ${points[0][1].toPrecision(3)} in epoch ${first} to ${end.toPrecision(3)} in epoch ${last}`;
  return svg(
    "svg",
    { class: "curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": told },
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
    svg("polyline", {
      class: "line",
      points: points.map(([e, v]) => `${x(e).toFixed(1)},${y(v).toFixed(1)}`).join(" "),
    }),
    points.length < 40 &&
      points.map(([e, v]) =>
        svg(
          "circle",
          { class: "dot", cx: x(e), cy: y(v), r: 3 },
          svg("title", {}, `epoch ${e}: ${v}`),
        ),
      ),
  );
}

/** Four or five round numbers that span two values. */
function steps(low, high) {
  if (high === low) [low, high] = [low - 0.5, high + 0.5];
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let i = Math.floor(low / step); i <= Math.ceil(high / step); i += 1)
    found.push(Number((i * step).toPrecision(6)));
  return found;
}
