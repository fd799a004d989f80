// Bars with names and numbers. Items are {name, value, kind, text, ghost, title}; `ghost` is a second value as a thin mark.
//
//   const view = bars(parent, { label, high: 1 });  view.update(items);

import { each, figure, set, short } from "./draw.js";
import { makeSvg } from "./shared/dom.js";

const ROW = 26, GAP = 7; // px

export function bars(parent, { label, high = 1, low = 0, format = (value) => short(value, 3), most = 640, names = 84, numbers = 58, row = ROW }) {
  let items = [];
  const view = figure(parent, label, draw, { most });
  view.svg.classList.add("bars");
  const tracks = view.group("tracks"), fills = view.group("fills"), ghosts = view.group("ghosts"), left = view.group("names"), right = view.group("numbers");

  function draw(width) {
    const room = Math.min(names, width * 0.36), start = room + 6, stop = Math.max(width - numbers, start + 20), top = typeof high === "function" ? high(items) : high;
    const x = (value) => start + ((Math.min(Math.max(value, low), top) - low) / (top - low)) * (stop - start), zero = x(Math.max(low, 0));
    const y = (n) => n * (row + GAP) + 2;
    each(tracks, "rect", items, (_, n) => ({ x: start, y: y(n), width: stop - start, height: row, rx: 4 }));
    each(fills, "rect", items, ({ value, kind, title, fill }, n) => {
      const at = x(Number.isFinite(value) ? value : low), from = Math.min(at, zero);
      return { x: from, y: y(n), width: Math.max(Math.abs(at - zero), Number.isFinite(value) && value !== 0 ? 1.5 : 0), height: row, rx: 4, class: kind ?? "weight", fill: fill ?? null, title: title ?? "" };
    });
    const marked = items.map((item, n) => ({ ...item, n })).filter((item) => item.ghost !== undefined);
    each(ghosts, "line", marked, ({ ghost, n }) => ({ x1: x(ghost), x2: x(ghost), y1: y(n) - 2, y2: y(n) + row + 2 }));
    each(left, "text", items, ({ name, kind, title }, n) => ({ x: room, y: y(n) + row / 2 + 4.5, "text-anchor": "end", class: kind ? `of-${kind}` : "", text: name, title: title ?? "" }));
    each(right, "text", items, ({ value, text }, n) => ({ x: stop + 8, y: y(n) + row / 2 + 4.5, text: text ?? format(value) }));
    return Math.max(items.length * (row + GAP) - GAP + 4, 10);
  }

  return { update(next) { items = next; view.redraw(); }, svg: view.svg };
}

// Upright bars for many keys; with `state` and `field` their tops can be dragged, or moved with the arrow keys.
//
//   const view = columns(parent, { label, low: 0, high: 1 });  view.update(items);   items as in bars()

export function columns(parent, { label, low = 0, high = 1, height = 150, most = 640, names = true, numbers = true, format = (value) => short(value, 2), state = null, field = "", step = 0.1 }) {
  let items = [], y = null, dragged = null;
  const view = figure(parent, label, draw, { most, role: state ? "group" : "img" });
  view.svg.classList.add("bars");
  const tracks = view.group("tracks"), fills = view.group("fills"), ghosts = view.group("ghosts"), below = view.group("names"), above = view.group("numbers"), tops = view.group("handles");

  function draw(width) {
    const count = Math.max(items.length, 1), wide = Math.min(width / count, 92), room = numbers ? 22 : 4, foot = names ? 22 : 4;
    const gap = wide > 12 ? Math.min(wide * 0.2, 12) : 1, top = typeof high === "function" ? high(items) : high;
    y = (value) => height - foot - ((Math.min(Math.max(value, low), top) - low) / (top - low)) * (height - foot - room);
    const zero = y(Math.max(low, 0)), x = (n) => n * wide + gap / 2;
    each(tracks, "rect", items, (_, n) => ({ x: x(n), y: room, width: wide - gap, height: height - foot - room, rx: 4 }));
    each(fills, "rect", items, ({ value, kind, title, fill }, n) => ({ x: x(n), y: Math.min(y(value), zero), width: wide - gap, height: Math.abs(y(value) - zero), rx: Math.min(4, wide / 4), class: kind ?? "weight", fill: fill ?? null, title: title ?? "" }));
    each(ghosts, "line", items.map((item, n) => ({ ...item, n })).filter((item) => item.ghost !== undefined), ({ ghost, n }) => ({ x1: x(n) - 2, x2: x(n) + wide - gap + 2, y1: y(ghost), y2: y(ghost) }));
    each(below, "text", names ? items : [], ({ name }, n) => ({ x: x(n) + (wide - gap) / 2, y: height - 5, "text-anchor": "middle", text: name }));
    each(above, "text", numbers ? items : [], ({ value, text }, n) => ({ x: x(n) + (wide - gap) / 2, y: Math.min(y(value), zero) - (state ? 13 : 6), "text-anchor": "middle", text: text ?? format(value) }));
    if (state) grips(x, wide - gap, top);
    return height;
  }

  function grips(x, wide, top) {
    while (tops.childElementCount > items.length) tops.lastElementChild.remove();
    items.forEach(({ value, name }, n) => {
      const grip = tops.children[n] ?? made(n);
      set(grip, { transform: `translate(${(x(n) + wide / 2).toFixed(1)} ${y(value).toFixed(1)})`, "aria-label": `${name}, arrow keys change it`, "aria-valuenow": value.toFixed(2), "aria-valuemin": low, "aria-valuemax": top, "aria-valuetext": format(value) });
      set(grip.firstChild, { x: -wide / 2, y: -16, width: wide, height: 32, class: "finger" });
      set(grip.lastChild, { x: -Math.min(wide / 2, 17), y: -5, width: Math.min(wide, 34), height: 10, rx: 5, class: "grip" });
    });
  }

  function made(n) {
    const grip = makeSvg("g", tops, { class: "handle upright", tabindex: 0, role: "slider", "aria-orientation": "vertical" });
    makeSvg("rect", grip);
    makeSvg("rect", grip);
    grip.addEventListener("pointerdown", (event) => { event.preventDefault(); grip.setPointerCapture(event.pointerId); grip.focus(); dragged = n; });
    grip.addEventListener("pointermove", (event) => {
      if (dragged !== n) return;
      const box = view.svg.getBoundingClientRect(), at = ((event.clientY - box.top) / box.height) * height, top = typeof high === "function" ? high(items) : high;
      change(n, low + ((y(low) - at) / (y(low) - y(top))) * (top - low), top);
    });
    for (const end of ["pointerup", "pointercancel"]) grip.addEventListener(end, () => { dragged = null; });
    grip.addEventListener("keydown", (event) => {
      const by = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 5, PageDown: -5 }[event.key];
      if (!by) return;
      event.preventDefault();
      change(n, state.get(field)[n] + by * step, typeof high === "function" ? high(items) : high);
    });
    return grip;
  }

  function change(n, to, top) {
    const value = Number((Math.round(Math.min(Math.max(to, low), top) / step) * step).toFixed(4));
    state.set({ [field]: state.get(field).map((x, m) => (m === n ? value : x)) });
  }

  return { update(next) { items = next; view.redraw(); }, svg: view.svg };
}
