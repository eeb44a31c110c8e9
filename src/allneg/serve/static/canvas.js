/** Points on a canvas: pan, zoom, hover, click, with mouse, finger and keyboard. */

import { el } from "./dom.js";
import { short } from "./names.js";

const [MIN_ZOOM, MAX_ZOOM] = [0.5, 200]; // at 1 the whole map is visible
const REACH = 14; // pixels around the pointer in which a point is found

/**
 * @param {{ points: number[][], names: string[], colours: number[], legend: string[] }} data
 * @param {{ keep: (at: string) => void, open: (name: string) => void }} callbacks
 */
export function canvasMap({ points, names, colours, legend }, { keep, open }) {
  const canvas = el("canvas", {
    tabindex: "0",
    role: "img",
    "aria-label": `Map of ${names.length} entities. Arrow keys pan, plus and minus zoom; find an entity by the field above.`,
  });
  const tip = el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  const zoomer = (text, label, factor) =>
    el(
      "button",
      {
        type: "button",
        class: "button",
        "aria-label": label,
        onclick: () => (factor ? zoom(factor, size.w / 2, size.h / 2) : reset()),
      },
      text,
    );
  const element = el(
    "div",
    { class: "map" },
    canvas,
    tip,
    el(
      "div",
      { class: "zoom", role: "group", "aria-label": "Zoom" },
      zoomer("+", "Zoom in", 1.6),
      zoomer("−", "Zoom out", 1 / 1.6),
      zoomer("⟲", "Show all", 0),
    ),
  );
  const pen = canvas.getContext("2d");
  const bounds = box(points);
  const order = names.map((_, i) => i).sort((a, b) => colours[b] - colours[a]); // grey ones below
  let look = { x: bounds.x, y: bounds.y, z: 1 };
  let size = { w: 0, h: 0 };
  let [over, found, pending] = [-1, -1, false];

  const scale = () => Math.min(size.w / bounds.wide, size.h / bounds.high) * 0.92 * look.z;
  const position = (i) => [
    size.w / 2 + (points[i][0] - look.x) * scale(),
    size.h / 2 - (points[i][1] - look.y) * scale(),
  ];

  function draw() {
    pending = false;
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(size.w * ratio);
    canvas.height = Math.round(size.h * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(element);
    const paints = legend.map((_, i) => style.getPropertyValue(`--${swatch(legend, i)}`).trim());
    const radius = Math.min(
      5,
      (names.length > 5000 ? 1.6 : 2.6) * Math.sqrt(Math.max(1, look.z)) ** 0.6,
    );
    pen.globalAlpha = 0.85;
    for (const i of order) {
      const [x, y] = position(i);
      if (x < -9 || y < -9 || x > size.w + 9 || y > size.h + 9) continue;
      pen.fillStyle = paints[colours[i]] ?? paints[0];
      pen.beginPath();
      pen.arc(x, y, radius, 0, 7);
      pen.fill();
    }
    pen.globalAlpha = 1;
    for (const i of new Set([found, over])) if (i >= 0) named(i, style, radius);
  }

  function named(i, style, radius) {
    const [x, y] = position(i);
    pen.strokeStyle = style.getPropertyValue("--text");
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(x, y, radius + 4, 0, 7);
    pen.stroke();
    pen.font = `600 13px ${style.fontFamily}`;
    const name = short(names[i]);
    const width = pen.measureText(name).width;
    const left = Math.max(4, Math.min(size.w - width - 4, x - width / 2));
    pen.lineWidth = 4;
    pen.strokeStyle = style.getPropertyValue("--surface");
    pen.strokeText(name, left, y - radius - 9);
    pen.fillStyle = style.getPropertyValue("--text");
    pen.fillText(name, left, y - radius - 9);
  }

  function redraw() {
    if (!pending) requestAnimationFrame(draw);
    pending = true;
  }

  function moved() {
    keep([look.x, look.y, look.z].map((value) => Number(value.toFixed(4))).join(","));
    redraw();
  }

  /** Zoom with (px, py) as the fixed point. */
  function zoom(factor, px, py) {
    const before = scale();
    look.z = Math.max(MIN_ZOOM, Math.min(MAX_ZOOM, look.z * factor));
    const change = 1 / before - 1 / scale();
    look.x += (px - size.w / 2) * change;
    look.y -= (py - size.h / 2) * change;
    moved();
  }

  function pan(dx, dy) {
    look.x -= dx / scale();
    look.y += dy / scale();
    moved();
  }

  function reset() {
    look = { x: bounds.x, y: bounds.y, z: 1 };
    moved();
  }

  function nearest(px, py) {
    let [best, least] = [-1, REACH * REACH];
    for (const i of names.keys()) {
      const [x, y] = position(i);
      const far = (x - px) ** 2 + (y - py) ** 2;
      if (far < least) [best, least] = [i, far];
    }
    return best;
  }

  function hover(i, px, py) {
    if (i !== over) redraw();
    over = i;
    tip.hidden = i < 0;
    canvas.classList.toggle("on", i >= 0);
    if (i < 0) return;
    const shown = legend.length > 1 ? [names[i], legend[colours[i]]] : [names[i]];
    tip.textContent = shown.map(short).join(" · ");
    tip.style.left = `${Math.min(px + 14, Math.max(0, size.w - tip.offsetWidth - 6))}px`;
    tip.style.top = `${py + 16}px`;
  }

  const touches = new Map();
  let travelled = 0;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    touches.set(event.pointerId, [event.offsetX, event.offsetY]);
    if (touches.size === 1) travelled = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = [event.offsetX, event.offsetY];
    const was = touches.get(event.pointerId);
    if (!was) return hover(nearest(x, y), x, y);
    hover(-1);
    const other = [...touches].find(([id]) => id !== event.pointerId)?.[1];
    touches.set(event.pointerId, [x, y]);
    travelled += Math.hypot(x - was[0], y - was[1]);
    if (other) {
      const apart = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]) || 1;
      zoom(apart([x, y]) / apart(was), (x + other[0]) / 2, (y + other[1]) / 2);
    } else if (travelled > 3) pan(x - was[0], y - was[1]);
  });
  const lift = (event) => touches.delete(event.pointerId);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerup", (event) => {
    lift(event);
    const i = travelled <= 3 ? nearest(event.offsetX, event.offsetY) : -1;
    if (i >= 0) open(names[i]);
  });
  canvas.addEventListener("pointerleave", () => hover(-1));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * 0.0015), event.offsetX, event.offsetY);
  });
  canvas.addEventListener("keydown", (event) => {
    const step = {
      ArrowLeft: [60, 0],
      ArrowRight: [-60, 0],
      ArrowUp: [0, 60],
      ArrowDown: [0, -60],
    }[event.key];
    const factor = { "+": 1.6, "=": 1.6, "-": 1 / 1.6 }[event.key];
    if (!step && !factor && event.key !== "0") return;
    event.preventDefault();
    if (step) pan(step[0], step[1]);
    else if (factor) zoom(factor, size.w / 2, size.h / 2);
    else reset();
  });
  function measure() {
    size = { w: element.clientWidth, h: element.clientHeight };
    redraw();
  }
  new ResizeObserver(measure).observe(element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  return {
    element,
    /** Show the section and mark the entity that a state names. */
    look({ at, name }) {
      const [x, y, z] = (at ?? "").split(",").map(Number);
      const isGiven = [x, y, z].every(Number.isFinite);
      found = name ? names.indexOf(name) : -1;
      if (isGiven) look = { x, y, z: Math.max(MIN_ZOOM, Math.min(MAX_ZOOM, z)) };
      else if (found >= 0) look = { x: points[found][0], y: points[found][1], z: 4 };
      else look = { x: bounds.x, y: bounds.y, z: 1 };
      measure(); // a key may be pressed before the observer runs
    },
  };
}

function box(points) {
  const [xs, ys] = [points.map((p) => p[0]), points.map((p) => p[1])];
  const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
  const most = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
  const [left, right, low, high] = [least(xs), most(xs), least(ys), most(ys)];
  return {
    x: (left + right) / 2,
    y: (low + high) / 2,
    wide: right - left || 1,
    high: high - low || 1,
  };
}

/** The class of a colour; the last two mean other answers and no answer. */
export function swatch(names, i) {
  if (names.length < 2) return "c-0";
  if (i === names.length - 1) return "c-none";
  return i === names.length - 2 ? "c-other" : `c-${i}`;
}
