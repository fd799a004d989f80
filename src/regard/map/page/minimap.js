// The whole matrix in a corner, with the part on screen; press or drag to go there.

import { TILE } from "./codec.js";
import { make } from "./dom.js";
import { sideOf } from "./geometry.js";

const LARGEST = 132, LEAST = 20; // CSS pixels

export class Minimap {
  constructor(app, parent) {
    this.app = app;
    this.canvas = make("canvas", parent, { name: "minimap", role: "img", "aria-label": "The whole matrix and the part on screen" });
    this.ground = null;
    this.of = [];
    const go = (event) => {
      const box = this.canvas.getBoundingClientRect(), sheet = app.sheet();
      const k = ((event.clientX - box.left) / box.width) * sheet.keys, q = ((event.clientY - box.top) / box.height) * sheet.queries;
      app.view.moveTo({ q, k, scale: app.view.scale }, { fly: false });
    };
    this.canvas.addEventListener("pointerdown", (event) => { this.canvas.setPointerCapture(event.pointerId); go(event); });
    this.canvas.addEventListener("pointermove", (event) => { if (event.buttons) go(event); });
  }

  // Not shown while the map itself shows everything.
  draw(statistic, palette, theme) {
    const { app, canvas } = this, sheet = app.sheet(), ratio = app.plot.ratio, box = app.view.box();
    canvas.hidden = box.q0 <= 0 && box.k0 <= 0 && box.q1 >= sheet.queries && box.k1 >= sheet.keys;
    if (canvas.hidden) return;
    const most = Math.max(sheet.queries, sheet.keys), largest = Math.min(LARGEST, app.stageWidth() * 0.28);
    const wide = Math.max((largest * sheet.keys) / most, LEAST), high = Math.max((largest * sheet.queries) / most, LEAST);
    const width = Math.round(wide * ratio), height = Math.round(high * ratio);
    const tile = app.store.get(app.place(), { z: 0, y: 0, x: 0 });
    const of = [tile, statistic, palette, width, height, theme];
    if (of.some((each, n) => each !== this.of[n])) {
      this.of = of;
      canvas.style.width = `${wide}px`;
      canvas.style.height = `${high}px`;
      this.ground = tile && !tile.empty ? this.pooled(tile[statistic], sheet, palette, width, height, theme) : null;
    }
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d");
    context.fillStyle = theme.hidden;
    context.fillRect(0, 0, width, height);
    if (this.ground) context.drawImage(this.ground, 0, 0);
    const x = Math.max((box.k0 / sheet.keys) * width, 0), y = Math.max((box.q0 / sheet.queries) * height, 0);
    const right = Math.min((box.k1 / sheet.keys) * width, width), bottom = Math.min((box.q1 / sheet.queries) * height, height);
    const least = 7 * ratio, w = Math.max(right - x, least), h = Math.max(bottom - y, least);
    const left = Math.min(Math.max((x + right - w) / 2, 0), width - w), top = Math.min(Math.max((y + bottom - h) / 2, 0), height - h);
    for (const [color, thick] of [[theme.paper, 4], [theme.mark, 2]]) {
      context.lineWidth = thick * ratio;
      context.strokeStyle = color;
      context.strokeRect(left + ratio, top + ratio, w - 2 * ratio, h - 2 * ratio);
    }
  }

  // A dot here stands for several cells of the overview: the strongest of them.
  pooled(bytes, sheet, palette, width, height, theme) {
    const side = sideOf(sheet, 0), rows = Math.ceil(sheet.queries / side), columns = Math.ceil(sheet.keys / side);
    const canvas = document.createElement("canvas");
    canvas.width = width;
    canvas.height = height;
    const image = new ImageData(width, height), pixels = new Uint32Array(image.data.buffer);
    for (let y = 0; y < height; y++) {
      const r0 = Math.floor((y * rows) / height), r1 = Math.max(Math.ceil(((y + 1) * rows) / height), r0 + 1);
      for (let x = 0; x < width; x++) {
        const c0 = Math.floor((x * columns) / width), c1 = Math.max(Math.ceil(((x + 1) * columns) / width), c0 + 1);
        let most = 0;
        for (let r = r0; r < r1; r++) for (let c = c0; c < c1; c++) most = Math.max(most, bytes[r * TILE + c]);
        pixels[y * width + x] = palette.table[most];
      }
    }
    const context = canvas.getContext("2d");
    context.putImageData(image, 0, 0);
    context.globalCompositeOperation = "destination-over";
    context.fillStyle = theme.hidden;
    context.fillRect(0, 0, width, height);
    return canvas;
  }
}
