// Drawing with SVG: elements are kept and changed, not made anew, so that a frame is short and a finger on one is not lost.

import { RAMPS, ramp } from "./shared/colors.js";
import { makeSvg } from "./shared/dom.js";

const before = new WeakMap(); // the attributes that each element has

// Set attributes that differ from those it has; `text` is its content, `title` what a pointer is told.
export function set(element, { text, title, ...attributes }) {
  const had = before.get(element) ?? {}, now = { ...attributes };
  for (const [name, value] of Object.entries(attributes)) {
    const written = now[name] = typeof value === "number" ? String(Math.round(value * 100) / 100) : value;
    if (written === had[name]) continue;
    if (written === null || written === undefined) element.removeAttribute(name);
    else element.setAttribute(name, written);
  }
  if (text !== undefined && text !== had.text) element.textContent = text;
  if (title !== undefined && title !== had.title) {
    element.querySelector("title")?.remove();
    if (title) makeSvg("title", element).textContent = title;
  }
  before.set(element, { ...had, ...now, text, title });
  return element;
}

// One element in `parent` for each item; `attributes(item, n)` says how it looks.
export function each(parent, tag, items, attributes) {
  while (parent.childElementCount > items.length) parent.lastElementChild.remove();
  items.forEach((item, n) => set(parent.children[n] ?? makeSvg(tag, parent), attributes(item, n)));
}

// A drawing as wide as there is room. `draw(width)` is called when that changes, and by redraw(); it returns the height.
export function figure(parent, label, draw, { most = 2000, role = "img" } = {}) {
  const svg = makeSvg("svg", parent, { class: "figure", role, "aria-label": label });
  const room = () => Math.min(Math.max(parent.clientWidth, 120), most);
  let width = 0;
  // The room is measured once and when the observer says that it changed: to ask in every frame would lay out the whole page for each figure.
  function redraw() {
    width ||= room();
    const height = Math.round(draw(width));
    set(svg, { viewBox: `0 0 ${width} ${height}`, width, height });
  }
  const observer = new ResizeObserver(() => {
    if (!svg.isConnected || room() === width) return;
    width = room();
    redraw();
  });
  observer.observe(parent);
  return { svg, redraw, group: (name) => makeSvg("g", svg, name ? { class: name } : {}) };
}

export const isDark = () => document.documentElement.dataset.theme === "dark";
const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;

// The color of a share from 0 to 1, and the ink that can be read on it.
export function shade(share) {
  const color = ramp(RAMPS.tide[isDark() ? "dark" : "light"], share);
  return { fill: css(color), ink: 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2] > 140 ? "#000" : "#fff" };
}

// The color of a number from −1 to 1.
export function balance(share) {
  const color = ramp(RAMPS.balance[isDark() ? "dark" : "light"], 0.5 + share / 2);
  return { fill: css(color), ink: 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2] > 140 ? "#000" : "#fff" };
}

// --- numbers as people read them ---

// `digits` decimals, with a real minus; 0 has no sign.
export function decimals(value, digits = 2) {
  if (value === Infinity) return "∞";
  if (value === -Infinity) return "−∞";
  const text = value.toFixed(digits);
  return /^-0(\.0*)?$/.test(text) ? text.slice(1) : text.replace("-", "−");
}

// As short as it can be without loss up to `digits` decimals: 1, 0.5, 0.7071.
export const short = (value, digits = 4) => {
  if (!Number.isFinite(value)) return decimals(value);
  if (value !== 0 && Math.abs(value) < 0.5 * 10 ** -digits) return value.toExponential(1).replace(/-/g, "−");
  return String(Number(value.toFixed(digits))).replace("-", "−");
};

export const percent = (value) => (value > 0 && value < 0.005 ? "<1 %" : value < 1 && value > 0.995 ? ">99 %" : `${Math.round(100 * value)} %`);
export const thousands = (value) => Math.round(value).toLocaleString("en-US").replace(/,/g, "\u202f");
// 8.4 M, 1.2 G: in powers of a thousand.
export function brief(value) {
  const power = Math.min(Math.floor(Math.log10(Math.max(Math.abs(value), 1)) / 3), 5);
  return power === 0 ? String(Math.round(value)) : `${Number((value / 1000 ** power).toPrecision(3))} ${["", "k", "M", "G", "T", "P"][power]}`;
}
