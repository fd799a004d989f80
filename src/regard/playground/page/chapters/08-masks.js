// Chapter 8: masks. Which pairs may be seen; what that saves; drawn by hand if one likes.

import * as A from "../attention.js";
import { bars } from "../bars.js";
import { curves } from "../chart.js";
import { button, choice, reading, row, slider, toggle } from "../controls.js";
import { brief, percent, short, thousands } from "../draw.js";
import { flag, numbers, whole, word } from "../fields.js";
import { heatmap } from "../heatmap.js";
import { normals } from "../random.js";
import { known, reach } from "../reach.js";
import { make } from "../shared/dom.js";

const LONGEST = 32, WIDTH = 2, HEAD = 64, BYTES = 4; // HEAD: d_k and d_v of the costs; BYTES of a weight
const LENGTHS = Array.from({ length: 28 }, (_, n) => Math.round(16 * 2 ** (n / 3)));

// Queries, keys and values of all positions, always the same.
const normal = normals(8), drawn = (scale) => Array.from({ length: LONGEST }, () => Array.from({ length: WIDTH }, () => Number((scale * normal()).toFixed(2))));
const QUERY = drawn(1.2), KEY = drawn(1.2), VALUE = drawn(1);

// Each mask: what the sliders set, how many pairs it shows of n, and what it says. `w` keys in a window, itself included.
const MASKS = {
  full: { title: "full", uses: [], mask: () => A.full(), about: () => "Every query sees every key, itself included." },
  causal: { title: "causal", uses: [], mask: () => A.causal(), about: () => "A query sees itself and what came before, never what follows." },
  window: { title: "window", uses: ["width", "past"], mask: ({ width }) => A.windowed((width - 1) / 2, (width - 1) / 2), about: ({ width }) => `A query sees the ${width} nearest keys: itself and ${(width - 1) / 2} to either side.` },
  dilated: { title: "dilated", uses: ["width", "step", "past"], mask: ({ width, gap }) => A.dilated(width, gap), about: ({ width, gap }) => `A query sees ${width} keys that are ${gap} apart: with as many keys as a window it reaches ${gap} times as far, and skips those between.` },
  global: { title: "global", uses: ["width", "globals", "past"], mask: ({ width, globals }) => A.either(A.windowed((width - 1) / 2, (width - 1) / 2), A.globals(Array.from({ length: globals }, (_, n) => n))), about: ({ width, globals }) => `A window of ${width}, and the first ${globals === 1 ? "token sees" : `${globals} tokens see`} all and ${globals === 1 ? "is" : "are"} seen by all.` },
  document: { title: "document", uses: ["texts", "past"], mask: ({ texts, n }) => (i, j) => Math.floor((i * texts) / n) === Math.floor((j * texts) / n), about: ({ texts }) => `${texts} texts packed into one sequence: a query sees its own text only.` },
};
const USES = (kind, name) => MASKS[kind].uses.includes(name);

const settings = (state) => ({ n: state.get("n"), width: 2 * state.get("side") + 1, gap: state.get("gap"), globals: Math.min(state.get("globals"), state.get("n")), texts: Math.min(state.get("texts"), state.get("n")) });
// The mask of the buttons and sliders, at any length.
function base(state, n = state.get("n")) {
  const kind = state.get("kind"), mask = MASKS[kind].mask({ ...settings(state), n });
  return state.get("past") && USES(kind, "past") ? A.both(mask, A.causal()) : mask;
}
// The same with what was drawn on it: `flips` are the cells that differ.
function seenBy(state) {
  const mask = base(state), flips = new Set(state.get("flips"));
  return flips.size ? (i, j) => mask(i, j) !== flips.has(i * LONGEST + j) : mask;
}
const attention = (state, mask = seenBy(state)) => {
  const n = state.get("n");
  return A.attend({ query: QUERY.slice(0, n), key: KEY.slice(0, n), value: VALUE.slice(0, n), mask });
};
const places = (n) => Array.from({ length: n }, (_, j) => String(j));
const chosen = (state) => Math.min(state.get("row"), state.get("n") - 1);

const small = (state) => ({ result: attention(state), score: "scaled", rows: places(state.get("n")), columns: places(state.get("n")) });

function count(mask, n) {
  let pairs = 0;
  for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) if (mask(i, j)) pairs += 1;
  return pairs;
}
// How many pairs the mask of the buttons shows of n tokens, without looking at each.
function pairsOf(state, n) {
  const kind = state.get("kind"), { width, gap, globals, texts } = settings(state), past = kind === "causal" || (state.get("past") && USES(kind, "past"));
  const all = (m) => (past ? (m * (m + 1)) / 2 : m * m);
  // An offset o between query and key occurs m − o times, ahead as often as behind.
  const near = (m, apart) => A.sum(Array.from({ length: (width - 1) / 2 }, (_, k) => Math.max(m - (k + 1) * apart, 0))) * (past ? 1 : 2) + m;
  if (kind === "window") return near(n, 1);
  if (kind === "dilated") return near(n, gap);
  if (kind === "global") return all(n) - all(n - globals) + near(n - globals, 1);
  if (kind === "document") return A.sum(Array.from({ length: texts }, (_, t) => all(Math.ceil(((t + 1) * n) / texts) - Math.ceil((t * n) / texts))));
  return all(n);
}

function build(stage, { state }) {
  const top = row(stage);
  choice(top, state, "kind", { label: "mask", options: Object.entries(MASKS).map(([value, { title }]) => ({ value, text: title })) });
  const past = toggle(top, state, "past", { label: "and causal" }).parentElement;
  const clear = button(top, "clear what was drawn", () => state.set({ flips: [] }));
  const sliders = row(stage);
  slider(sliders, state, "n", { label: "tokens n", low: 4, high: LONGEST, step: 1 });
  const width = slider(sliders, state, "side", { label: "window w", low: 0, high: 7, step: 1, format: (side) => String(2 * side + 1) }).element;
  const step = slider(sliders, state, "gap", { label: "keys are apart by", low: 2, high: 6, step: 1 }).element;
  const globals = slider(sliders, state, "globals", { label: "global tokens", low: 1, high: 6, step: 1 }).element;
  const texts = slider(sliders, state, "texts", { label: "texts", low: 2, high: 6, step: 1 }).element;
  const about = make("p", stage, { name: "masks-about" });

  const panels = make("div", stage, { name: "panels two" }), left = make("div", panels), right = make("div", panels);
  make("p", left, { text: "Query (row) may see key (column): click or drag to draw", name: "part-title" });
  let to = true;
  const look = (cell) => { if (cell) state.set({ row: cell.row }); };
  const picture = heatmap(left, { label: "The mask, drawn on with pointer or keys", most: 460, hover: look, paint });
  const readings = make("div", left, { name: "readings" });
  const pairs = reading(readings, "visible pairs"), work = reading(readings, "work", `2·d_k + 2·d_v = ${4 * HEAD} operations a pair, d_k = d_v = ${HEAD}`), memory = reading(readings, "memory of the weights", `${BYTES} bytes a pair`);
  make("p", left, { text: `Work and memory are of one head with d_k = d_v = ${HEAD}, if hidden pairs are skipped and not computed and thrown away.`, name: "part-note" });
  make("p", right, { text: "Weights under this mask", name: "part-title" });
  const weights = heatmap(right, { label: "Weights under the mask", most: 460, hover: look });
  const sentence = make("p", right, { name: "part-note", role: "status" });

  const lower = make("div", stage, { name: "panels two masks-lower" }), one = make("div", lower), two = make("div", lower);
  const title = make("p", one, { name: "part-title" });
  const line = bars(one, { label: "Weights of the chosen query", names: 34, row: 15, high: (items) => Math.max(0.5, ...items.map(({ value, ghost }) => Math.max(value, ghost))) });
  const sums = make("div", one, { name: "readings" }), total = reading(sums, "sum of the row"), output = reading(sums, "output");
  const far = make("p", two, { name: "part-title" });
  slider(row(two), state, "layers", { label: "layers with this mask", low: 1, high: 6, step: 1 });
  const cone = reach(two, { label: "What the chosen query can know of after several layers", most: 620 });
  make("p", stage, { text: "Pairs against the length: each line of the grid is a hundred times the one below", name: "part-title masks-spaced" });
  const chart = curves(stage, { label: "Visible pairs against the number of tokens", height: 250, xName: "tokens n", most: 1400, yFormat: (y) => brief(10 ** y), xFormat: (n) => brief(n) });

  // Cells of a stroke all become what the first one becomes.
  function paint({ row: i, column: j }, first) {
    if (first) to = !seenBy(state)(i, j);
    const cell = i * LONGEST + j, flips = state.get("flips").filter((each) => each !== cell);
    state.set({ flips: base(state)(i, j) === to ? flips : [...flips, cell], row: i });
  }
  // What was drawn belongs to the mask it was drawn on.
  state.on("kind n side gap globals texts past", (changed) => { if (!changed.includes("flips") && state.get("flips").length) state.set({ flips: [] }); });

  return () => {
    const n = state.get("n"), kind = state.get("kind"), mask = seenBy(state), result = attention(state, mask), at = chosen(state), names = places(n);
    for (const [element, name] of [[width, "width"], [step, "step"], [globals, "globals"], [texts, "texts"], [past, "past"]]) element.hidden = !USES(kind, name);
    const flipped = state.get("flips").length;
    clear.disabled = !flipped;
    about.textContent = `${MASKS[kind].about(settings(state))}${state.get("past") && USES(kind, "past") ? " Of those, only itself and earlier ones." : ""}${flipped ? ` You changed ${flipped} ${flipped === 1 ? "pair" : "pairs"}.` : ""}`;
    const shown = count(mask, n);
    const hidden = (i, j) => !result.visible[i][j];
    picture.update({ values: result.visible.map((each) => each.map((one) => (one ? 0.5 : 0))), rows: names, columns: names, hidden, row: at, numbers: false });
    pairs(`${thousands(shown)} of ${thousands(n * n)} · ${percent(shown / (n * n))}`);
    work(`${brief(4 * HEAD * shown)}FLOP`);
    memory(shown * BYTES < 1000 ? `${shown * BYTES} B` : `${brief(shown * BYTES)}B`);
    weights.update({ values: result.weights, rows: names, columns: names, hidden, row: at, high: 0.8 });
    const seen = result.visible[at].filter(Boolean).length, free = A.attend({ query: [QUERY[at]], key: KEY.slice(0, n) }).weights[0];
    sentence.textContent = seen ? `Query ${at} sees ${seen} of ${n} keys.` : `Query ${at} sees no key: all its weights are 0, and its output is 0.`;
    title.textContent = `Weights of query ${at}; dashed: without a mask`;
    line.update(result.weights[at].map((value, j) => ({ name: String(j), value, ghost: free[j], kind: hidden(at, j) ? "other" : "weight", text: hidden(at, j) ? "hidden" : short(value, 3) })));
    total(short(A.sum(result.weights[at]), 3));
    output(`[${result.output[at].map((x) => short(x, 2)).join(", ")}]`);
    const layers = state.get("layers"), knows = known({ mask, n, layers, row: at })[layers].filter(Boolean).length;
    far.textContent = `After ${layers} ${layers === 1 ? "layer" : "layers"} position ${at} can know of ${knows} of ${n} tokens`;
    cone.update({ mask, n, layers, row: at });
    const grow = (name, each) => ({ name, kind: "other", dashed: true, points: LENGTHS.map((m) => [m, Math.log10(each(m))]) });
    chart.update({ lines: [grow("n²", (m) => m * m), grow("n", (m) => m), { name: MASKS[kind].title, kind: "weight", points: LENGTHS.map((m) => [m, Math.log10(pairsOf(state, m))]) }], low: LENGTHS[0], high: LENGTHS[LENGTHS.length - 1], bottom: 0, top: 8, logX: true, room: 70 });
  };
}

export const chapter = {
  number: 8,
  name: "masks",
  title: "Masks",
  text: [
    "A mask says which query may see which key; a hidden pair gets the weight 0, and the visible ones share the whole.",
    "It keeps a language model from looking ahead, keeps texts apart that are packed together, and makes long sequences cheap.",
  ],
  predict: {
    question: "A query has the weights 0.5, 0.3 and 0.2. A mask hides the first key. What are the other two now?",
    options: ["0.3 and 0.2, and the row sums to 0.5", "0.5 and 0.5", "0.6 and 0.4", "0.55 and 0.45"],
    answer: 2,
    because: "Softmax runs over the visible keys only: 0.3/0.5 and 0.2/0.5. Their ratio stays, and the row sums to 1 again.",
  },
  notice: [
    "Causal: a language model learns to predict token i + 1 at position i, for all positions at once. If it could see token i + 1 it would copy it and learn nothing.",
    "A window of w keys shows about n · w of the n² pairs: the line in the chart has the slope of n, not of n². Twice as long costs twice as much, not four times.",
    "Layers add up: with (w − 1)/2 keys to either side, information travels L · (w − 1)/2 positions in L layers. Dilated reaches further, but more layers never fill its gaps: with keys 2 apart an even position knows of even ones only. One global token makes it two layers to anywhere.",
    "Click a cell to hide it: its weight goes to 0 and all others of its row grow by the same factor, so that the row sums to 1 again. Other rows stay as they are.",
    "Hide a whole row: a query with no visible key has weights 0 and output 0, not NaN.",
  ],
  exercise: { number: 19 },
  experiments: [{ command: "regard lab patterns", about: "measures what masks show, what they save in time and memory, and what they cost a model that learns under them." }],
  fields: {
    kind: word("causal", Object.keys(MASKS)), n: whole(12, 4, LONGEST), side: whole(2, 0, 7), gap: whole(2, 2, 6), globals: whole(1, 1, 6), texts: whole(3, 2, 6), past: flag(),
    layers: whole(2, 1, 6), flips: numbers([], 0, LONGEST * LONGEST - 1, LONGEST * LONGEST),
  },
  small,
  row: 6,
  build,
};
