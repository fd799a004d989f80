// The window on the matrix: pan and zoom by d3-zoom, in CSS pixels. screen = scale · cell + offset, in doubles.

import { select, zoom, zoomIdentity, zoomTransform } from "./d3-zoom.js";

const LARGEST_CELL = 96; // CSS pixels
const THINNEST = 48; // CSS pixels of the shorter side of a matrix that is very long in the other direction
const still = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

export class View {
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.width = this.height = 1;
    this.sheet = { queries: 1, keys: 1 };
    this.atHome = true;
    this.goal = null;
    this.frame = 0;
    this.zoom = zoom()
      .extent(() => [[0, 0], [this.width, this.height]])
      .filter((event) => !event.button && (!event.ctrlKey || event.type === "wheel"))
      .clickDistance(4)
      .on("start", (event) => { if (event.sourceEvent) this.stop(); })
      .on("zoom", (event) => {
        if (event.sourceEvent) this.atHome = false;
        changed();
      });
    this.selection = select(canvas).call(this.zoom);
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
    return this.at(this.width / 2, this.height / 2);
  }

  box() {
    const from = this.at(0, 0), to = this.at(this.width, this.height);
    return { q0: from.q, q1: to.q, k0: from.k, k1: to.k };
  }

  whole() {
    const { queries, keys } = this.sheet;
    return Math.min(this.width / keys, this.height / queries) * 0.98;
  }

  home() {
    const { queries, keys } = this.sheet;
    const scale = Math.min(Math.max(this.whole(), THINNEST / Math.max(Math.min(queries, keys), 1)), LARGEST_CELL);
    return { q: Math.min(queries / 2, (this.height / scale) * 0.49), k: Math.min(keys / 2, (this.width / scale) * 0.49), scale };
  }

  resize(width, height) {
    const before = this.width > 1 ? this.place() : null;
    this.width = width;
    this.height = height;
    this.limit();
    if (before) this.moveTo(this.atHome ? this.home() : before, { fly: false, home: this.atHome });
  }

  show(sheet) {
    this.sheet = sheet;
    this.limit();
  }

  limit() {
    const { queries, keys } = this.sheet, margin = 40 / this.whole();
    this.zoom
      .scaleExtent([Math.min(this.whole(), LARGEST_CELL) * 0.6, LARGEST_CELL])
      .translateExtent([[-margin, -margin], [keys + margin, queries + margin]]);
  }

  place() {
    return { ...this.center, scale: this.scale };
  }

  moveTo(place, { fly = true, home = false } = {}) {
    this.atHome = home;
    const target = this.transform(place);
    this.stop();
    if (!fly || still()) return this.selection.call(this.zoom.transform, target);
    this.goal = place;
    const landed = () => { this.goal = null; };
    this.selection.transition().duration(700).on("end interrupt cancel", landed).call(this.zoom.transform, target);
  }

  goHome(options = {}) {
    this.moveTo(this.home(), { ...options, home: true });
  }

  zoomBy(factor) {
    const from = this.goal || this.place();
    this.glide({ ...from, scale: from.scale * factor });
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
    const { k: scale } = target, { x, y } = target;
    this.goal = { q: (this.height / 2 - y) / scale, k: (this.width / 2 - x) / scale, scale };
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
    const [least, most] = this.zoom.scaleExtent(), bounded = Math.min(Math.max(scale, least), most);
    const free = zoomIdentity.translate(this.width / 2 - bounded * k, this.height / 2 - bounded * q).scale(bounded);
    return this.zoom.constrain()(free, [[0, 0], [this.width, this.height]], this.zoom.translateExtent());
  }
}
