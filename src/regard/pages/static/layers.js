// What is shown: layers of cells, as tokens or merged into words.

const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement, font = "system-ui, sans-serif";
const ratio = () => window.devicePixelRatio || 1;
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

function floats(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

function axis(starts, text) {
  const tokens = text === null ? null : data.texts[text].tokens;
  const one = (n) => starts[n + 1] - starts[n] === 1;
  return {
    count: starts.length - 1,
    label: (n) => tokens && one(n) ? tokens[starts[n]] : String(starts[n]),
    place: (n) => one(n) ? String(starts[n]) : `${starts[n]} to ${starts[n + 1] - 1}`,
    text: (n) => !tokens ? "" : tokens.slice(starts[n], Math.min(starts[n + 1], starts[n] + 8)).join(" ") + (starts[n + 1] - starts[n] > 8 ? " …" : ""),
  };
}

const asTokens = data.layers.map((layer) => layer.refused ? layer : {
  ...layer, cells: layer.cells.map(floats), down: axis(layer.rows, layer.queries), across: axis(layer.columns, layer.keys),
});

const hasWords = (text) => text !== null && data.texts[text].words !== null;
const mergeable = (layer) => !layer.refused && layer.exact && (hasWords(layer.queries) || hasWords(layer.keys));

function wordAxis(text, count) {
  if (!hasWords(text)) return { starts: Array.from({ length: count + 1 }, (_, n) => n), axis: null };
  const { starts, words } = data.texts[text];
  const place = (n) => starts[n + 1] - starts[n] === 1 ? String(starts[n]) : `${starts[n]} to ${starts[n + 1] - 1}`;
  return { starts, axis: { count: words.length, label: (n) => words[n], place, text: (n) => words[n] } };
}

// From word to word: the sum over the key's tokens, the mean over the query's; hidden where all pairs are.
function merged(layer) {
  if (!mergeable(layer)) return layer;
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
const layers = () => state.words ? (asWords = asWords || asTokens.map(merged)) : asTokens;
const shown = asTokens.map((_, n) => n).filter((n) => !asTokens[n].refused);
const state = { layer: shown[0] ?? 0, head: 0, view: 0, own: false, words: false, at: null };
const current = () => layers()[state.layer];
