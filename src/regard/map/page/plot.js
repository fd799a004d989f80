// The map itself on its canvas: tiles of the level that fits, and coarser ones where those have not come yet.

import { TILE } from "./codec.js";
import { levelFor, sideOf, tilesIn } from "./geometry.js";

export class Plot {
  constructor(canvas, view, store) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.view = view;
    this.store = store;
    this.ratio = 1;
    this.spent = 0;
  }

  resize(width, height, ratio) {
    this.ratio = ratio;
    this.canvas.width = Math.max(Math.round(width * ratio), 1);
    this.canvas.height = Math.max(Math.round(height * ratio), 1);
  }

  level(layer) {
    return levelFor(layer, this.view.scale * this.ratio);
  }

  // Tiles to ask for, in this order: the overview, the view, then ever coarser ones around it for panning, as far as
  // they are at hand: levels above `from` are computed when asked for, those below only once the head is exact.
  wanted(layer, from) {
    const z = this.level(layer), box = this.view.box();
    const list = [{ z: 0, y: 0, x: 0 }, ...tilesIn(layer, z, box)];
    for (let up = z - 2; up > 0 && up >= from; up -= 2) list.push(...tilesIn(layer, up, box));
    return z === 0 ? list.slice(0, 1) : list;
  }

  // What was drawn: {missing: tiles still coarser than they should be, estimate: whether any is an estimate}.
  draw(place, layer, statistic, palette, theme, thumb) {
    const began = performance.now(), { context, canvas } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.imageSmoothingEnabled = false;
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, canvas.width, canvas.height);
    const left = this.x(0), top = this.y(0), right = this.x(layer.keys), bottom = this.y(layer.queries);
    context.save();
    context.beginPath();
    context.rect(left, top, Math.max(right - left, 1), Math.max(bottom - top, 1));
    context.clip();
    context.fillStyle = theme.hidden;
    context.fillRect(0, 0, canvas.width, canvas.height);
    const z = this.level(layer), drawn = { missing: 0, estimate: false };
    for (const at of tilesIn(layer, z, this.view.box())) this.one(place, layer, at, statistic, palette, thumb, drawn);
    context.restore();
    this.spent = performance.now() - began;
    return drawn;
  }

  one(place, layer, at, statistic, palette, thumb, drawn) {
    const span = TILE * sideOf(layer, at.z);
    const box = { q0: at.y * span, q1: (at.y + 1) * span, k0: at.x * span, k1: (at.x + 1) * span };
    for (let up = 0; up <= at.z; up++) {
      const found = { z: at.z - up, y: Math.floor(at.y / 2 ** up), x: Math.floor(at.x / 2 ** up) };
      const tile = this.store.get(place, found);
      if (!tile) continue;
      if (up > 0) drawn.missing++;
      if (tile.estimate) drawn.estimate = true;
      if (!tile.empty) this.piece(this.store.image(tile, statistic, palette), sideOf(layer, found.z), found, TILE, box);
      return;
    }
    drawn.missing++;
    if (!thumb) return;
    drawn.estimate = true;
    this.piece(thumb.image(statistic, palette), thumb.side, { y: 0, x: 0 }, thumb.size, box);
  }

  // The part of an image that lies in the box and on screen, between whole device pixels, so that tiles meet exactly.
  piece(image, side, { y, x }, cells, box) {
    const seen = this.view.box(), q = y * cells * side, k = x * cells * side;
    const first = (low, origin) => Math.max(Math.floor((low - origin) / side), 0);
    const last = (high, origin) => Math.min(Math.ceil((high - origin) / side), cells);
    const r0 = first(Math.max(seen.q0, box.q0), q), r1 = last(Math.min(seen.q1, box.q1), q);
    const c0 = first(Math.max(seen.k0, box.k0), k), c1 = last(Math.min(seen.k1, box.k1), k);
    if (r1 <= r0 || c1 <= c0) return;
    const left = this.x(k + c0 * side), top = this.y(q + r0 * side);
    const wide = this.x(k + c1 * side) - left, high = this.y(q + r1 * side) - top;
    this.context.drawImage(image, c0, r0, c1 - c0, r1 - r0, left, top, wide, high);
  }

  x(key) {
    return Math.round((key * this.view.scale + this.view.offset.x) * this.ratio);
  }

  y(query) {
    return Math.round((query * this.view.scale + this.view.offset.y) * this.ratio);
  }
}
