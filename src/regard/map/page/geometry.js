// Where tiles are. Rows are queries, columns keys; a level's cell has a side of 1, 2, 4, … matrix cells.

import { TILE } from "./codec.js";

export const sideOf = (layer, z) => 2 ** (layer.levels - 1 - z);

// The finest level that there is, of a saved view perhaps not the last.
export const finestOf = (layer) => layer.finest ?? layer.levels - 1;

// The finest level whose cells are at least one device pixel wide, so that no pixel hides what it stands for.
export function levelFor(layer, pixelsPerCell) {
  const halvings = Math.ceil(-Math.log2(pixelsPerCell) - 1e-9);
  return Math.min(layer.levels - 1 - Math.min(Math.max(halvings, 0), layer.levels - 1), finestOf(layer));
}

// Tiles that meet a box of matrix cells {q0, q1, k0, k1}, those near its middle first.
export function tilesIn(layer, z, box) {
  const span = TILE * sideOf(layer, z), found = [];
  const last = (length) => Math.ceil(length / span) - 1;
  const [y0, y1] = [Math.max(Math.floor(box.q0 / span), 0), Math.min(Math.ceil(box.q1 / span) - 1, last(layer.queries))];
  const [x0, x1] = [Math.max(Math.floor(box.k0 / span), 0), Math.min(Math.ceil(box.k1 / span) - 1, last(layer.keys))];
  const middle = { y: (box.q0 + box.q1) / 2 / span - 0.5, x: (box.k0 + box.k1) / 2 / span - 0.5 };
  for (let y = y0; y <= y1; y++) for (let x = x0; x <= x1; x++) found.push({ z, y, x });
  const far = (tile) => Math.hypot(tile.y - middle.y, tile.x - middle.x);
  return found.sort((a, b) => far(a) - far(b));
}

export const samePlace = (a, b) => a.layer === b.layer && a.batch === b.batch && a.head === b.head;
