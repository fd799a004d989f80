// What is shown: layers of cells, as tokens or merged into words.

import { floats } from "./shared/numbers.js";

export const data = JSON.parse(document.getElementById("data").textContent);

function axis(starts, text) {
  const tokens = text === null ? null : data.texts[text].tokens;
  const one = (n) => starts[n + 1] - starts[n] === 1;
  return {
    count: starts.length - 1,
    label: (n) => tokens && one(n) ? tokens[starts[n]] : String(starts[n]),
    place: (n) => one(n) ? String(starts[n]) : `${starts[n]} to ${starts[n + 1] - 1}`,
    text: (n) => !tokens ? "" : tokens.slice(starts[n], Math.min(starts[n + 1], starts[n] + 8)).join(" ") + (starts[n + 1] - starts[n] > 8 ? " …" : ""),
    ...marks(text, (n) => starts[n]),
  };
}

// Which tokens are special, and which belong to the second text of a pair.
function marks(text, first) {
  const { special, second } = text === null ? { special: [], second: null } : data.texts[text];
  const known = new Set(special);
  return { special: (n) => known.has(first(n)), side: (n) => second === null ? "" : first(n) < second ? "A" : "B" };
}

const asTokens = data.layers.map((layer) => layer.refused ? layer : {
  ...layer, cells: layer.cells.map((cells) => floats(cells, layer.half)), down: axis(layer.rows, layer.queries), across: axis(layer.columns, layer.keys),
});

const hasWords = (text) => text !== null && data.texts[text].words !== null;
const canMerge = (layer) => !layer.refused && layer.exact && !layer.signed && (hasWords(layer.queries) || hasWords(layer.keys));
export const mergeable = asTokens.some(canMerge);
export const wordy = data.texts.some((text) => text.words !== null) && data.layers.some((layer) => !layer.refused && !layer.signed);

function wordAxis(text, count) {
  if (!hasWords(text)) return { starts: Array.from({ length: count + 1 }, (_, n) => n), axis: null };
  const { starts, words } = data.texts[text];
  const place = (n) => starts[n + 1] - starts[n] === 1 ? String(starts[n]) : `${starts[n]} to ${starts[n + 1] - 1}`;
  return { starts, axis: { count: words.length, label: (n) => words[n], place, text: (n) => words[n], ...marks(text, (n) => starts[n]) } };
}

// From word to word: the sum over the key's tokens, the mean over the query's; hidden where all pairs are.
function merged(layer) {
  if (!canMerge(layer)) return layer;
  const rows = layer.down.count, columns = layer.across.count;
  const down = wordAxis(layer.queries, rows), across = wordAxis(layer.keys, columns);
  const high = down.starts.length - 1, wide = across.starts.length - 1;
  const cells = layer.cells.map((from) => {
    const to = new Float32Array(layer.heads.length * high * wide).fill(-Infinity);
    for (let head = 0; head < layer.heads.length; head++) {
      for (let i = 0; i < high; i++) for (let j = 0; j < wide; j++) {
        let sum = 0, seen = false;
        for (let row = down.starts[i]; row < down.starts[i + 1]; row++) {
          for (let column = across.starts[j]; column < across.starts[j + 1]; column++) {
            const value = from[(head * rows + row) * columns + column];
            if (value !== -Infinity) { sum += value; seen = true; }
          }
        }
        if (seen) to[(head * high + i) * wide + j] = sum / (down.starts[i + 1] - down.starts[i]);
      }
    }
    return to;
  });
  return { ...layer, cells, down: down.axis || layer.down, across: across.axis || layer.across, words: true };
}

let asWords = null;
export const layersOf = (words) => words ? (asWords = asWords || asTokens.map(merged)) : asTokens;
export const shown = asTokens.map((_, n) => n).filter((n) => !asTokens[n].refused);

// As many digits as the stored numbers have.
export function exact(layer, value) {
  if (!Number.isFinite(value) || value === 0) return String(value);
  if (!layer.half) return value.toPrecision(6);
  return Math.abs(value) < 6.2e-5 ? `${value < 0 ? "> −" : "< "}0.0001` : value.toPrecision(3);
}
