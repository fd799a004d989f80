// The window on the matrix: pan and zoom by d3-zoom, in CSS pixels. screen = scale · cell + offset, in doubles.
// A place {q, k, scale} is what lies in the middle of the free part of the canvas.

import { select, zoom, zoomIdentity, zoomTransform } from "./d3-zoom.js";

const still = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

// A matrix smaller than the window stays inside; a larger one can be moved until its edge is in the middle.
function within(offset, size, low, high) {
  const over = size - (high - low), slack = Math.min(Math.max(over, 0), (high - low) / 2);
  return over > 0 ? clamp(offset, high - size - slack, low + slack) : clamp(offset, low, high - size);
}

// How far a part of the window must go to be inside.
function missing(start, size, low, high) {
  return start < low ? low - start : Math.min(high - start - size, 0);
}

export class View {
  // `twin`: a second canvas of the same size that shows the same part of another matrix.
  constructor(canvas, twin, layout, changed) {
    this.canvas = canvas;
    this.layout = layout;
    this.width = this.height = 1;
    this.layer = { queries: 1, keys: 1 };
    this.atHome = true;
    this.goal = null;
    this.frame = 0;
    this.zoom = zoom()
      .extent(() => [[0, 0], [this.width, this.height]])
      .constrain((transform) => this.bounded(transform))
      .filter((event) => !event.button && (!event.ctrlKey || event.type === "wheel"))
      .clickDistance(4)
      .on("start", (event) => { if (event.sourceEvent) this.stop(); })
      .on("zoom", (event) => {
        if (event.sourceEvent) this.atHome = false;
        for (const each of [canvas, twin]) each.__zoom = event.transform; // where d3-zoom keeps it
        changed();
      });
    for (const each of [twin, canvas]) this.selection = select(each).call(this.zoom).on("dblclick.zoom", null);
  }

  get scale() {
    return zoomTransform(this.canvas).k;
  }

  get offset() {
    const { x, y } = zoomTransform(this.canvas);
    return { x, y };
  }

  // {q, k} in matrix cells, as doubles, of a point of the canvas.
  at(x, y) {
    const { k, x: dx, y: dy } = zoomTransform(this.canvas);
    return { q: (y - dy) / k, k: (x - dx) / k };
  }

  get center() {
    const { q, k } = this.place();
    return { q, k };
  }

  // What the canvas shows, and the part of it that nothing else covers.
  box() {
    const from = this.at(0, 0), to = this.at(this.width, this.height);
    return { q0: from.q, q1: to.q, k0: from.k, k1: to.k };
  }

  free() {
    const { left, top, right, bottom } = this.layout.free(this.scale), from = this.at(left, top), to = this.at(right, bottom);
    return { q0: from.q, q1: to.q, k0: from.k, k1: to.k };
  }

  resize(width, height) {
    const before = this.width > 1 ? this.place() : null;
    this.width = width;
    this.height = height;
    this.limit();
    if (before) this.moveTo(this.atHome ? this.layout.home() : before, { fly: false, home: this.atHome });
  }

  show(layer) {
    this.layer = layer;
    this.limit();
  }

  limit() {
    this.zoom.scaleExtent(this.layout.scales);
  }

  place() {
    return this.placeOf(zoomTransform(this.canvas));
  }

  moveTo(place, { fly = true, home = false } = {}) {
    this.atHome = home;
    const target = this.transform(place);
    this.stop();
    if (!fly || still()) return this.selection.call(this.zoom.transform, target);
    this.goal = this.placeOf(target);
    const landed = () => { this.goal = null; };
    this.selection.transition().duration(700).on("end interrupt cancel", landed).call(this.zoom.transform, target);
  }

  goHome(options = {}) {
    this.moveTo(this.layout.home(), { ...options, home: true });
  }

  // The free part has changed: the map goes where it is seen, if it is not.
  adapt() {
    const now = zoomTransform(this.canvas), next = this.atHome ? this.transform(this.layout.home()) : this.bounded(now);
    this.limit();
    if (Math.hypot(next.x - now.x, next.y - now.y) < 0.5 && Math.abs(next.k - now.k) < 1e-9 * now.k) return;
    if (this.atHome) this.goHome();
    else this.glide(this.placeOf(next));
  }

  // Move no further than is needed to see a row, a column or a cell; null is any.
  reveal(q, k) {
    const { scale, offset } = this, { left, top, right, bottom } = this.layout.free(scale);
    const x = k === null ? 0 : missing(k * scale + offset.x, scale, left, right);
    const y = q === null ? 0 : missing(q * scale + offset.y, scale, top, bottom);
    if (x || y) this.panBy(-x, -y);
  }

  zoomBy(factor) {
    const from = this.goal || this.place();
    this.glide({ ...from, scale: from.scale * factor });
  }

  // What lies at a point of the canvas stays there.
  zoomAt(x, y, factor) {
    const { k, x: dx, y: dy } = zoomTransform(this.canvas), [least, most] = this.zoom.scaleExtent();
    const scale = clamp(k * factor, least, most), part = scale / k;
    this.glide(this.placeOf(zoomIdentity.translate(x - (x - dx) * part, y - (y - dy) * part).scale(scale)));
  }

  panBy(x, y) {
    const from = this.goal || this.place();
    this.glide({ ...from, q: from.q + y / from.scale, k: from.k + x / from.scale });
  }

  // Toward a place that repeated keys may move further while it is approached.
  glide(place) {
    this.atHome = false;
    this.stop();
    const target = this.transform(place);
    if (still()) return this.selection.call(this.zoom.transform, target);
    this.goal = this.placeOf(target);
    const step = () => {
      const now = this.place(), goal = this.goal, part = 0.35;
      const near = Math.hypot(goal.q - now.q, goal.k - now.k) * goal.scale < 0.5 && Math.abs(Math.log(goal.scale / now.scale)) < 1e-3;
      const next = near ? goal : {
        q: now.q + (goal.q - now.q) * part,
        k: now.k + (goal.k - now.k) * part,
        scale: now.scale * (goal.scale / now.scale) ** part,
      };
      this.frame = near ? 0 : requestAnimationFrame(step);
      if (near) this.goal = null;
      this.selection.call(this.zoom.transform, near ? target : this.transform(next));
    };
    this.frame = requestAnimationFrame(step);
  }

  stop() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.goal = null;
    this.selection.interrupt();
  }

  transform({ q, k, scale = this.scale }) {
    const [least, most] = this.zoom.scaleExtent(), near = clamp(scale, least, most);
    const { left, top, right, bottom } = this.layout.free(near);
    return this.bounded(zoomIdentity.translate((left + right) / 2 - near * k, (top + bottom) / 2 - near * q).scale(near));
  }

  placeOf({ x, y, k: scale }) {
    const { left, top, right, bottom } = this.layout.free(scale);
    return { q: ((top + bottom) / 2 - y) / scale, k: ((left + right) / 2 - x) / scale, scale };
  }

  bounded(transform) {
    const { left, top, right, bottom } = this.layout.free(transform.k), { queries, keys } = this.layer;
    const x = within(transform.x, keys * transform.k, left, right), y = within(transform.y, queries * transform.k, top, bottom);
    return x === transform.x && y === transform.y ? transform : zoomIdentity.translate(x, y).scale(transform.k);
  }
}
