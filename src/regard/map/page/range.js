// The ends of the color scale. Logarithmic: from what is weak in the head's overview to its largest weight, taken once for
// each visit of a head, so that colors stay when exact levels replace an estimate. Linear: from nothing to the largest in
// view, taken again whenever the view has come to rest.

import { logOf, sizeOf } from "./codec.js";
import { tilesIn } from "./geometry.js";
import { Thumb } from "./thumb.js";

const LOWEST = -12, HIGHEST_LOW = -3, WEAK = 0.05; // log2 of a multiple of uniform; the share of cells below "weak"

const SPAN = [5, 14]; // least and most doublings between the ends of the colors of a difference

// Sizes are steps of a byte, as `sizeOf` counts them.
const largest = (bytes, coding) => bytes.reduce((most, byte) => Math.max(most, sizeOf(byte, coding)), 0);

// The size that WEAK of the visible cells do not reach; 0 if nothing is visible.
function weak(bytes, coding) {
  const counts = new Uint32Array(256);
  let seen = 0, size = 1;
  for (const byte of bytes) if (byte) { counts[sizeOf(byte, coding)]++; seen++; }
  for (let left = seen * WEAK - counts[0]; size < 255 && (left -= counts[size]) >= 0;) size++;
  return seen ? size : 0;
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

  // Of each head that is shown, so that two have one scale; null for one that has not come.
  overviews() {
    const { app } = this;
    return app.places().map((place) => app.store.get(place, { z: 0, y: 0, x: 0 }) ?? app.heads.thumb(place));
  }

  // Whether there are weights beyond the end of the colors.
  get exceeded() {
    const tiles = this.overviews(), coding = this.app.coding();
    if (!this.first || tiles.includes(null) || this.app.state.get("scale") !== "log") return false;
    return Math.max(...tiles.map((tile) => logOf(this.top(tile, "max"), coding))) > this.first.high + coding.step / 2;
  }

  // Of a tile or a thumbnail, found once: its largest size by statistic, and its weak one.
  top(tile, statistic) {
    tile.tops ??= {};
    return (tile.tops[statistic] ??= tile.empty ? 0 : largest(tile[statistic], this.app.coding()));
  }

  bottom(tile) {
    return (tile.bottom ??= tile.empty ? 0 : weak(tile.mean, this.app.coding()));
  }

  ends() {
    const { app } = this, coding = app.coding(), linear = app.state.get("scale") === "linear", value = (size) => logOf(size, coding);
    if (!this.first) {
      const tiles = this.overviews().filter((tile) => tile && this.top(tile, "max"));
      if (!tiles.length) return { low: -8, high: coding.hi, linear };
      const weakest = Math.floor(value(Math.min(...tiles.map((tile) => this.bottom(tile))))), most = value(Math.max(...tiles.map((tile) => this.top(tile, "max"))));
      const low = coding.signed ? Math.min(Math.max(weakest, most - SPAN[1]), most - SPAN[0]) : Math.min(Math.max(weakest, LOWEST), HIGHEST_LOW);
      const ends = { low, high: Math.max(most, low + 4) };
      if (this.overviews().some((tile) => !tile || tile instanceof Thumb)) return { ...ends, linear }; // until the tiles come
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
      for (const place of app.places()) {
        const tile = app.store.get(place, at);
        if (tile) most = Math.max(most, this.top(tile, app.state.get("statistic")));
      }
    }
    const changed = most > 0 && most !== this.view;
    if (changed) this.view = most;
    return changed;
  }
}
