// Vectors in the plane that can be dragged, by pointer, touch or keyboard.
//
//   const view = plane(parent, state, { label, extent: 2.2, vectors: (state) => [{ name, kind, at: [x, y], field, index }] });
//
// A vector with `field` can be moved: it writes state[field], or row `index` of it. `kind` is query, key, value or output
// and gives the color. `under(group, place)` may draw behind the arrows; place(x, y) gives pixels.

import { decimals, each, figure, set } from "./draw.js";
import { makeSvg } from "./shared/dom.js";

const SNAP = 0.05, HANDLE = 11, FINGER = 22; // steps of a drag; px

export function plane(parent, state, { label, extent = 2.2, vectors, under = null, most = 460, arrow = true }) {
  let scale = 1, middle = 0, dragged = null;
  const place = ([x, y]) => [middle + x * scale, middle - y * scale];
  const { svg, redraw, group } = figure(parent, label, draw, { most, role: "group" });
  svg.classList.add("plane");
  const grid = group("grid"), behind = group(), arrows = group("arrows"), names = group("names"), handles = group("handles");

  function draw(width) {
    scale = width / (2 * extent);
    middle = width / 2;
    drawGrid(width);
    if (under) under(behind, place, scale);
    const list = vectors(state);
    each(arrows, "path", list, ({ at, kind, faint }) => ({ d: path(at), class: `${kind}${faint ? " faint" : ""}` }));
    const over = ({ at }, n) => list.slice(0, n).some((other) => Math.hypot(other.at[0] - at[0], other.at[1] - at[1]) < 0.15);
    each(names, "text", list, ({ at, name, kind }, n) => {
      const [x, y] = place(at), length = Math.hypot(...at) || 1, dx = at[0] / length, dy = at[1] / length;
      const off = state && HANDLE + 8;
      return { x: clamp(x + dx * off + 3 * Math.sign(dx), 14, width - 14), y: clamp(y - dy * off + (over({ at }, n) ? 20 : 4), 14, width - 6), class: kind, "text-anchor": x > width - 8 * name.length - 24 ? "end" : x < 8 * name.length + 24 ? "start" : dx > 0.3 ? "start" : dx < -0.3 ? "end" : "middle", text: name };
    });
    const movable = list.filter((one) => one.field);
    while (handles.childElementCount > movable.length) handles.lastElementChild.remove();
    movable.forEach((one, n) => handle(handles.children[n] ?? make(n), one));
    return width;
  }

  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  // An arrow from the origin, or a point.
  function path(at) {
    const [x, y] = place(at), [ox, oy] = place([0, 0]), length = Math.hypot(x - ox, y - oy);
    if (!arrow || length < 1) return `M${ox} ${oy}`;
    const ux = (x - ox) / length, uy = (y - oy) / length, head = Math.min(11, length / 2), px = -uy * head * 0.5, py = ux * head * 0.5;
    const f = (v) => v.toFixed(1), bx = x - ux * head, by = y - uy * head;
    return `M${f(ox)} ${f(oy)}L${f(bx)} ${f(by)}M${f(x)} ${f(y)}L${f(bx + px)} ${f(by + py)}L${f(bx - px)} ${f(by - py)}Z`;
  }

  function drawGrid(width) {
    const lines = [], whole = Math.floor(extent);
    for (let n = -whole; n <= whole; n++) lines.push([n, 0], [n, 1]);
    each(grid, "line", lines, ([n, upright]) => {
      const at = middle + (upright ? n : -n) * scale;
      return upright ? { x1: at, x2: at, y1: 0, y2: width, class: n ? "" : "axis" } : { y1: at, y2: at, x1: 0, x2: width, class: n ? "" : "axis" };
    });
  }

  function make(n) {
    const element = makeSvg("g", handles, { class: "handle", tabindex: 0, role: "slider" });
    makeSvg("circle", element, { r: FINGER, class: "finger" });
    makeSvg("circle", element, { r: HANDLE, class: "grip" });
    element.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      element.setPointerCapture(event.pointerId);
      element.focus();
      dragged = n;
    });
    element.addEventListener("pointermove", (event) => { if (dragged === n) move(n, pointed(event)); });
    for (const end of ["pointerup", "pointercancel"]) element.addEventListener(end, () => { dragged = null; });
    element.addEventListener("keydown", (event) => {
      const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      if (!step) return;
      event.preventDefault();
      const by = event.shiftKey ? 0.5 : 0.1, { at } = vectors(state).filter((one) => one.field)[n];
      move(n, [at[0] + by * step[0], at[1] + by * step[1]]);
    });
    return element;
  }

  function handle(element, { at, name, kind }) {
    const [x, y] = place(at), text = `${decimals(at[0])} right, ${decimals(at[1])} up`;
    set(element, { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, class: `handle ${kind}`, "aria-label": `${name}, arrow keys move it`, "aria-valuenow": at[0].toFixed(2), "aria-valuemin": -extent, "aria-valuemax": extent, "aria-valuetext": text });
  }

  function pointed(event) {
    const box = svg.getBoundingClientRect(), ratio = (2 * extent) / box.width;
    return [(event.clientX - box.left) * ratio - extent, extent - (event.clientY - box.top) * ratio];
  }

  function move(n, to) {
    const { field, index } = vectors(state).filter((one) => one.field)[n], edge = extent - 0.15;
    const at = to.map((x) => clamp(Number((Math.round(x / SNAP) * SNAP).toFixed(2)), -edge, edge));
    const before = state.get(field);
    state.set({ [field]: index === undefined ? at : before.map((row, each) => (each === index ? at : row)) });
  }

  return { update: redraw, svg };
}
