// Chapter 13: self and cross attention. The mini-course's translation map, which can be set, and the maps of a trained model.

import * as A from "../attention.js";
import { bars, columns } from "../bars.js";
import { button, choice, reading, row, slider, toggle } from "../controls.js";
import { decimals, percent, short } from "../draw.js";
import { flag, number, vector, whole, word } from "../fields.js";
import { heatmap } from "../heatmap.js";
import { make } from "../shared/dom.js";
import { lines } from "../shared/lines.js";
import { floats } from "../shared/numbers.js";

// "The cat sits on the mat" in French, as the mini-course prints the map.
const ENGLISH = ["The", "cat", "sits", "on", "the", "mat"], FRENCH = ["Le", "chat", "est", "assis", "sur", "le", "tapis"];
const PRINTED = [
  [0.8, 0.1, 0.0, 0.0, 0.1, 0.0],
  [0.1, 0.8, 0.1, 0.0, 0.0, 0.0],
  [0.0, 0.1, 0.4, 0.3, 0.1, 0.1],
  [0.0, 0.1, 0.7, 0.1, 0.0, 0.1],
  [0.0, 0.0, 0.1, 0.8, 0.1, 0.0],
  [0.1, 0.0, 0.0, 0.1, 0.7, 0.1],
  [0.0, 0.0, 0.0, 0.1, 0.1, 0.8],
];
const START = "‹start›";

const SOURCES = { course: "the mini-course's map", cat: "trained, the cat", friends: "trained, a harder sentence" };
const KINDS = {
  encoder: { title: "self, encoder", queries: "English", keys: "English", about: "Self attention in the encoder: English words look at English words, at all of them, since the whole sentence is there from the beginning." },
  decoder: { title: "self, decoder", queries: "French", keys: "French", about: "Self attention in the decoder: the place that chooses the next French word looks at what is written so far. The mask is causal, because later words are not written yet." },
  cross: { title: "cross", queries: "French", keys: "English", about: "Cross attention in the decoder: each French word, while it is chosen, asks the English words. Queries come from one sequence, keys and values from the other." },
};
// The printed map is one of cross attention.
const kindOf = (state) => (state.get("source") === "course" ? "cross" : state.get("kind"));

// Queries and keys of the trained model, as rows.
const unpacked = new Map();
function trained(data, source, kind) {
  const name = `${source} ${kind}`;
  if (!unpacked.has(name)) {
    const { width, attentions, english, french } = data[source], written = [START, ...french.slice(0, -1)];
    const rowsOf = (text) => { const list = floats(text, true); return Array.from({ length: list.length / width }, (_, n) => Array.from(list.subarray(n * width, (n + 1) * width))); };
    unpacked.set(name, { query: rowsOf(attentions[kind].q), key: rowsOf(attentions[kind].k), rows: kind === "encoder" ? english : french, columns: kind === "decoder" ? written : english });
  }
  return unpacked.get(name);
}

// The attention that is shown: of the printed map the logarithms are the logits, and a weight of 0 is hidden.
function attention(state, data, causal = kindOf(state) === "decoder" || (kindOf(state) === "cross" && state.get("causal"))) {
  const source = state.get("source"), mask = causal ? A.causal() : A.full(), temperature = state.get("tau");
  if (source !== "course") {
    const { query, key, rows, columns } = trained(data, source, kindOf(state));
    return { rows, columns, result: A.attend({ query, key, mask, temperature, queryStart: 0 }) };
  }
  const map = state.get("map"), zero = (names) => names.map(() => [0]);
  return { rows: FRENCH, columns: ENGLISH, result: A.attend({ query: zero(FRENCH), key: zero(ENGLISH), bias: (i, j) => Math.log(map[i * ENGLISH.length + j]), mask, temperature, queryStart: 0 }) };
}

// Each row's largest weight is its link; two links cross if the words change sides.
const linksOf = (weights) => weights.map((line) => line.indexOf(Math.max(...line)));
const crossings = (links) => A.sum(links.map((to, i) => links.slice(i + 1).filter((other) => other < to).length));

// What the model writes by itself; the maps are those of the right translation.
function alone({ french, written }) {
  const others = written.filter((word, n) => word !== french[n]), line = (words) => words.join(" ").replace("' ", "'");
  return `The map is that of the right translation; left alone, the model writes “${line(written)}”${others.length ? `, which has ${others.length} of ${french.length} words wrong (${others.join(", ")})` : ""}.`;
}

function build(stage, { state, data }) {
  const top = row(stage);
  choice(top, state, "source", { label: "map", options: Object.entries(SOURCES).map(([value, text]) => ({ value, text })) });
  choice(top, state, "kind", { label: "attention", options: Object.entries(KINDS).map(([value, { title }]) => ({ value, text: title })) });
  state.on("kind", () => { if (state.get("kind") !== "cross" && state.get("source") === "course") state.set({ source: "cat" }); });
  state.on("source", () => { if (state.get("source") === "course" && state.get("kind") !== "cross") state.set({ kind: "cross" }); });
  const way = make("div", stage, { name: "crossed-way", role: "img", "aria-label": "Where a translation model has its attentions" });
  const chips = [["English words", ""], ["self", "encoder"], ["feed-forward", ""], ["K and V", "given"], ["French words so far", ""], ["causal self", "decoder"], ["cross", "cross"], ["feed-forward", ""], ["next French word", ""]];
  const groups = [["encoder", chips.slice(0, 4)], ["decoder", chips.slice(4)]].map(([name, list]) => {
    const line = make("div", way, { name: "crossed-line" });
    make("span", line, { text: name, name: "crossed-name" });
    return list.map(([text, kind]) => ({ kind, chip: make("span", line, { text, name: "crossed-chip" }) }));
  }).flat();
  const about = make("p", stage, { name: "crossed-about" });
  const sliders = row(stage);
  slider(sliders, state, "tau", { label: "temperature τ", low: 0.1, high: 10, log: true, format: (x) => short(x, 2), ticks: [0.1, 1, 10] });
  const causal = toggle(sliders, state, "causal", { label: "put a causal mask on it" }).parentElement;
  const readings = make("div", stage, { name: "readings" });
  const shape = reading(readings, "map: queries × keys"), queries = reading(readings, "queries from"), keys = reading(readings, "keys and values from"), turned = reading(readings, "pairs of links that cross"), lost = reading(readings, "weight behind the mask");

  const panels = make("div", stage, { name: "panels two" }), left = make("div", panels), right = make("div", panels);
  make("p", left, { text: "Rows ask, columns are asked; press a row", name: "part-title" });
  const picture = heatmap(left, { label: "Weights: who asks whom", most: 600, largest: 50, sums: true, press: ({ row: i }) => state.set({ row: i }), hover: (cell) => { if (cell) tell(cell.row, cell.column); } });
  make("p", right, { text: "The same as lines, from 0.05 on: words that change sides make lines cross", name: "part-title" });
  const drawing = lines(make("div", right), { tell: () => {}, choose: (i) => state.set({ row: i }), look: (at) => { if (at?.side === "query") state.set({ row: at.n }); } });
  const said = make("p", stage, { name: "sentence", role: "status" });

  const lower = make("div", stage, { name: "panels two crossed-lower" }), one = make("div", lower), two = make("div", lower);
  const title = make("p", one, { name: "part-title" }), free = make("div", one), fixed = make("div", one);
  // The weights of the chosen row are 6 of the 42 of the map.
  const wide = ENGLISH.length, first = () => wide * Math.min(state.get("row"), FRENCH.length - 1);
  const part = { get: () => state.get("map").slice(first(), first() + wide), set: ({ map }) => state.set({ map: state.get("map").map((x, n) => map[n - first()] ?? x) }) };
  const grips = columns(free, { label: "Weights of the chosen French word, as set", low: 0, high: 1, height: 170, most: 560, state: part, field: "map", step: 0.05 });
  const again = button(row(free, "below"), "as printed", () => state.set({ map: PRINTED.flat() }));
  make("p", free, { text: "What you set is divided by the sum of what the row may see, so that the weights sum to 1 (at τ = 1).", name: "part-note" });
  const shown = bars(fixed, { label: "Weights of the chosen word", names: 76, row: 18 });
  make("p", two, { text: "What each word that is asked receives: the sum of its column. Dashed: 1", name: "part-title" });
  const received = bars(two, { label: "Weight received", names: 76, row: 18, high: (items) => Math.max(2, ...items.map(({ value }) => value)) });

  function tell(i, j) {
    const { rows, columns: names, result } = attention(state, data), asks = kindOf(state) === "encoder" ? `“${rows[i]}”` : `The step that chooses “${rows[i]}”`;
    said.textContent = `${asks} takes ${result.visible[i][j] ? decimals(result.weights[i][j], 3) : "nothing"} of what it gets from “${names[j]}”.`;
  }

  return () => {
    const course = state.get("source") === "course", kind = kindOf(state), { rows, columns: names, result } = attention(state, data), { weights, visible } = result;
    const at = Math.min(state.get("row"), rows.length - 1), hidden = (i, j) => !visible[i][j], links = linksOf(weights), own = KINDS[kind];
    causal.hidden = kind !== "cross";
    for (const { kind: each, chip } of groups) chip.classList.toggle("on", each === kind || (each === "given" && kind === "cross"));
    about.textContent = `${own.about} ${course ? "These are the numbers of the mini-course until you change them." : alone(data[state.get("source")])}`;
    shape(`${rows.length} × ${names.length}`);
    queries(own.queries);
    keys(own.keys);
    turned(kind === "cross" ? `${crossings(links)} of ${(rows.length * (rows.length - 1)) / 2}` : "–");
    const open = attention(state, data, false).result.weights, gone = A.sum(open.map((line, i) => A.sum(line.filter((_, j) => j > i)))) / A.sum(open.flat());
    lost(kind === "encoder" || (kind === "cross" && !state.get("causal")) ? "no mask" : percent(gone || 0));
    picture.update({ values: weights, rows, columns: names, hidden: (i, j) => (course ? state.get("causal") && j > i : hidden(i, j)), row: at });
    drawing.show({ queries: rows, keys: names, heads: [{ name: "", color: "var(--weight-fill)", weight: (a, b) => (hidden(a, b) ? -Infinity : weights[a][b]) }], threshold: 0.05, allowed: null, height: Math.min(44, 360 / rows.length) });
    tell(at, links[at]);
    title.textContent = course ? `Drag: what “${rows[at]}” takes of each English word` : kind === "encoder" ? `What “${rows[at]}” looks at` : `What the step that chooses “${rows[at]}” looks at`;
    free.hidden = !course;
    fixed.hidden = course;
    again.disabled = state.get("map").every((x, n) => x === PRINTED.flat()[n]);
    if (course) grips.update(part.get().map((value, j) => ({ name: names[j], value, kind: "weight", text: decimals(value) })));
    else shown.update(weights[at].map((value, j) => ({ name: names[j], value, kind: hidden(at, j) ? "other" : "weight", text: hidden(at, j) ? "hidden" : decimals(value, 3) })));
    received.update(A.transpose(weights).map((line, j) => ({ name: names[j], value: A.sum(line), ghost: 1, kind: "key", text: decimals(A.sum(line)) })));
  };
}

export const chapter = {
  number: 13,
  name: "self-and-cross",
  title: "Self and cross attention",
  text: [
    "In self attention queries, keys and values come from the same sequence; in cross attention queries come from one and keys and values from another, and nothing else differs.",
    "A translation model has both: here is the map of the mini-course, to be changed by hand, and what a small model learned from sentence pairs alone.",
  ],
  predict: {
    question: "7 French words ask 6 English ones. What shape has the map, and what sums to 1?",
    options: ["6 × 7, each English word's row", "7 × 6, each French word's row", "7 × 6, each English word's column", "7 × 7, rows and columns"],
    answer: 1,
    because: "There is a row for each query and a column for each key. Softmax divides each row, so each French word shares out 1; “sits” receives 1.3, because “est” and “assis” both ask it.",
  },
  notice: [
    "Self attention has a square map, n × n. Cross attention has a row for each word of one sequence and a column for each of the other, n × m.",
    "“est” and “assis” both give “sits” their largest weight: one English word becomes two, and its column sums to 1.3. “on” receives 1.4, in small shares of several words: links are read in rows, not in sums of columns.",
    "Words in the same order make a diagonal, and lines that do not cross. In the harder sentence “amis curieux” asks “curious friends” in reverse: the links leave the diagonal and cross.",
    "A causal mask on cross attention hides English words that stand further on than the French word: “amis” can no longer see “friends”. Nothing is gained: the English sentence is complete before the first French word is written. In the decoder's self attention the mask is needed, for there later words would give the answer away.",
    "A translation model has self attention in the encoder, causal self attention in the decoder, and after it cross attention, in every layer of the decoder. A language model such as GPT has the causal one only, BERT that of the encoder only.",
    "The trained model was told nothing about links. It has one head and one layer, so what it does not look at it cannot use; the maps of larger models are not that easy to read.",
  ],
  exercise: { number: 21 },
  experiments: [
    { command: "regard lab self-cross", about: "shows what changes when keys and values come from another sequence, by laws and in these models." },
    { command: "regard lab translation", about: "trains this model and measures how well its map agrees with the right alignment." },
  ],
  fields: {
    source: word("course", Object.keys(SOURCES)), kind: word("cross", Object.keys(KINDS)), map: vector(PRINTED.flat(), 1, 2), tau: number(1, 0.1, 10), causal: flag(), row: whole(3, 0, 10),
  },
  build,
};
