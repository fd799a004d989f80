// The binary answers: tiles ("RGT1") and thumbnails ("RGH1"), little endian.

export const TILE = 256;
const CELLS = TILE * TILE;
const EMPTY = 1, ESTIMATE = 2;

function magic(view, word) {
  const found = String.fromCharCode(...[0, 1, 2, 3].map((at) => view.getUint8(at)));
  if (found !== word) throw new Error(`the answer should start with ${word}, it starts with ${JSON.stringify(found)}`);
}

export function decodeTiles(buffer) {
  const view = new DataView(buffer), bytes = new Uint8Array(buffer), tiles = [];
  magic(view, "RGT1");
  let at = 8;
  for (let left = view.getUint32(4, true); left > 0; left--) {
    const flags = view.getUint8(at + 1);
    const tile = {
      z: view.getUint8(at), y: view.getUint32(at + 4, true), x: view.getUint32(at + 8, true),
      empty: (flags & EMPTY) !== 0, estimate: (flags & ESTIMATE) !== 0, mean: null, max: null,
    };
    at += 12;
    if (!tile.empty) {
      tile.mean = bytes.slice(at, at + CELLS);
      tile.max = bytes.slice(at + CELLS, at + 2 * CELLS);
      at += 2 * CELLS;
    }
    tiles.push(tile);
  }
  return tiles;
}

export function decodeThumbs(buffer) {
  const view = new DataView(buffer), bytes = new Uint8Array(buffer);
  magic(view, "RGH1");
  const heads = view.getUint32(4, true), size = view.getUint32(8, true), cells = size * size, start = 12 + heads;
  return Array.from({ length: heads }, (_, head) => {
    const at = start + head * 2 * cells;
    return { size, estimate: bytes[12 + head] !== 0, mean: bytes.slice(at, at + cells), max: bytes.slice(at + cells, at + 2 * cells) };
  });
}

const NONE = 128; // the byte of a difference of 0

// How many steps of a byte a value is above the smallest; of a difference its size is.
export const sizeOf = (byte, { signed }) => (signed ? (byte === 0 ? 0 : Math.abs(byte - NONE)) : byte);

// log2 of what such a size stands for: weight × visible keys.
export const logOf = (size, { hi, step, signed }) => hi - ((signed ? 255 - NONE : 255) - size) * step;

// What a byte stands for; byte 0 is nothing visible. Of weights the log2 of a multiple of uniform, of differences the
// multiple itself, with its sign.
export function valueOf(byte, coding) {
  if (byte === 0) return null;
  if (!coding.signed) return logOf(byte, coding);
  return byte === NONE ? 0 : Math.sign(byte - NONE) * 2 ** logOf(sizeOf(byte, coding), coding);
}
