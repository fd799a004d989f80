// The ends of the color scale. Logarithmic: from what is weak in the head's overview to its largest weight, taken once for
// each visit of a head, so that colors stay when exact levels replace an estimate. Linear: from nothing to the largest in
// view, taken again whenever the view has come to rest.

import { tilesIn } from "./geometry.js";
import { Thumb } from "./thumb.js";

const LOWEST = -12, HIGHEST_LOW = -3, WEAK = 0.05; // log2 of a multiple of uniform; the share of cells below "weak"

const largest = (bytes) => bytes.reduce((most, byte) => (byte > most ? byte : most), 0);

// The byte that WEAK of the visible cells do not reach; 0 if nothing is visible.
function weak(bytes) {
  const counts = new Uint32Array(256);
  for (const byte of bytes) counts[byte]++;
  let left = (bytes.length - counts[0]) * WEAK, byte = 1;
  while (byte < 255 && (left -= counts[byte]) >= 0) byte++;
  return counts[0] === bytes.length ? 0 : byte;
}

export class Range {
  constructor(app) {
    this.app = app;
    this.view = this.first = null;
  }

  // Another head is shown, or the whole of this one again.
  forget() {
    this.view = this.first = null;
  }

  overview() {
    const { app } = this;
    return app.store.get(app.place(), { z: 0, y: 0, x: 0 }) ?? app.heads.thumb(app.place());
  }

  // Whether there are weights beyond the end of the colors.
  get exceeded() {
    const tile = this.overview(), { hi, step } = this.app.coding();
    return Boolean(tile && this.first && this.app.state.get("scale") === "log" && hi - (255 - this.top(tile, "max")) * step > this.first.high + step / 2);
  }

  // Of a tile or a thumbnail, found once: its largest byte by statistic, and its weak one.
  top(tile, statistic) {
    tile.tops ??= {};
    return (tile.tops[statistic] ??= tile.empty ? 0 : largest(tile[statistic]));
  }

  bottom(tile) {
    return (tile.bottom ??= tile.empty ? 0 : weak(tile.mean));
  }

  ends() {
    const { app } = this, { hi, step } = app.coding(), linear = app.state.get("scale") === "linear";
    const value = (byte) => hi - (255 - byte) * step;
    if (!this.first) {
      const tile = this.overview();
      if (!tile || !this.top(tile, "max")) return { low: -8, high: hi, linear };
      const low = Math.min(Math.max(Math.floor(value(this.bottom(tile))), LOWEST), HIGHEST_LOW);
      const ends = { low, high: Math.max(value(this.top(tile, "max")), low + 4) };
      if (tile instanceof Thumb) return { ...ends, linear }; // until the tile comes
      this.first = ends;
    }
    const { low, high } = this.first;
    return { low, high: linear && this.view ? Math.max(value(this.view), low + 4) : high, linear };
  }

  // Whether the range of the view has changed since it was last asked.
  rest() {
    const { app } = this, layer = app.layer(), z = app.plot.level(layer);
    if (app.state.get("scale") !== "linear") return false;
    let most = 0;
    for (const at of tilesIn(layer, z, app.view.box())) {
      const tile = app.store.get(app.place(), at);
      if (tile) most = Math.max(most, this.top(tile, app.state.get("statistic")));
    }
    const changed = most > 0 && most !== this.view;
    if (changed) this.view = most;
    return changed;
  }
}
