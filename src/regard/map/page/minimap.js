// The whole matrix in a corner, with the part on screen; press or drag to go there.

import { TILE } from "./codec.js";
import { make } from "./shared/dom.js";
import { sideOf } from "./geometry.js";
import { pooled } from "./pool.js";

const LARGEST = 132, LEAST = 20; // CSS pixels

export class Minimap {
  constructor(app, parent) {
    this.app = app;
    this.canvas = make("canvas", parent, { name: "minimap", role: "img", "aria-label": "The whole matrix and the part on screen" });
    this.ground = null;
    this.of = [];
    const go = (event) => {
      const box = this.canvas.getBoundingClientRect(), layer = app.layer();
      const k = ((event.clientX - box.left) / box.width) * layer.keys, q = ((event.clientY - box.top) / box.height) * layer.queries;
      app.view.moveTo({ q, k, scale: app.view.scale }, { fly: false });
    };
    this.canvas.addEventListener("pointerdown", (event) => { this.canvas.setPointerCapture(event.pointerId); go(event); });
    this.canvas.addEventListener("pointermove", (event) => { if (event.buttons) go(event); });
  }

  // Not shown while the map itself shows everything, nor for a matrix whose axes say at every scale where one is.
  draw(statistic, palette, theme) {
    const { app, canvas } = this, layer = app.layer(), ratio = app.plot.ratio, box = app.view.free(), slack = 0.5 / app.view.scale;
    canvas.hidden = app.layout.split || app.layout.small || (box.q0 <= slack && box.k0 <= slack && box.q1 >= layer.queries - slack && box.k1 >= layer.keys - slack);
    if (canvas.hidden) return;
    const most = Math.max(layer.queries, layer.keys), largest = Math.min(LARGEST, app.stage.clientWidth * 0.28);
    const wide = Math.max((largest * layer.keys) / most, LEAST), high = Math.max((largest * layer.queries) / most, LEAST);
    const width = Math.round(wide * ratio), height = Math.round(high * ratio);
    const tile = app.store.get(app.place(), { z: 0, y: 0, x: 0 });
    const of = [tile, statistic, palette, width, height, theme];
    if (of.some((each, n) => each !== this.of[n])) {
      this.of = of;
      canvas.style.width = `${wide}px`;
      canvas.style.height = `${high}px`;
      const cells = (length) => Math.ceil(length / sideOf(layer, 0)), size = [cells(layer.queries), cells(layer.keys)];
      this.ground = tile && !tile.empty ? pooled(tile[statistic], TILE, ...size, palette, width, height, theme.hidden) : null;
    }
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d");
    context.fillStyle = theme.hidden;
    context.fillRect(0, 0, width, height);
    if (this.ground) context.drawImage(this.ground, 0, 0);
    const x = Math.max((box.k0 / layer.keys) * width, 0), y = Math.max((box.q0 / layer.queries) * height, 0);
    const right = Math.min((box.k1 / layer.keys) * width, width), bottom = Math.min((box.q1 / layer.queries) * height, height);
    const least = 7 * ratio, w = Math.max(right - x, least), h = Math.max(bottom - y, least);
    const left = Math.min(Math.max((x + right - w) / 2, 0), width - w), top = Math.min(Math.max((y + bottom - h) / 2, 0), height - h);
    for (const [color, thick] of [[theme.paper, 4], [theme.mark, 2]]) {
      context.lineWidth = thick * ratio;
      context.strokeStyle = color;
      context.strokeRect(left + ratio, top + ratio, w - 2 * ratio, h - 2 * ratio);
    }
  }
}
