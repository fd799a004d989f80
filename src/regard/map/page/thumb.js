// A head as a small map: it stands in the picker, and fills the map until tiles come.

import { TILE } from "./codec.js";
import { sideOf } from "./geometry.js";
import { pooled } from "./pool.js";

const SIZES = [64, 128, 256], CELLS = 32; // of the answer; that a matrix should have in it, or all of its own

const spanOf = (layer) => TILE * sideOf(layer, 0); // weights across the square that is asked for

// How large an answer to ask for: a thumbnail shows the square of the coarsest tile, of which a small matrix is a corner.
export function sizeFor(layer) {
  const most = Math.max(layer.queries, layer.keys);
  return SIZES.find((size) => most * size >= Math.min(CELLS, most) * spanOf(layer)) ?? TILE;
}

export class Thumb {
  // A cell stands for `side` × `side` weights.
  constructor(bytes, layer) {
    Object.assign(this, bytes);
    this.layer = layer;
    this.side = spanOf(layer) / this.size;
    this.painted = null;
  }

  // The whole answer, a pixel for each cell.
  image(statistic, palette) {
    if (this.painted?.palette !== palette || this.painted.statistic !== statistic) {
      this.painted = { palette, statistic, canvas: palette.paint(this[statistic], this.size) };
    }
    return this.painted.canvas;
  }

  // The matrix alone, as large as a square of `pixels` lets it be.
  picture(statistic, palette, hidden, pixels) {
    const { queries, keys } = this.layer, most = Math.max(queries, keys), cells = (length) => Math.ceil(length / this.side);
    const long = (length) => Math.max(Math.round((pixels * length) / most), 1);
    return pooled(this[statistic], this.size, cells(queries), cells(keys), palette, long(keys), long(queries), hidden);
  }
}
