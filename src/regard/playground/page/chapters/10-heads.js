// Chapter 10: many heads and W_O. Heads of MiniLM on sentences that come with the page; their q, k, v in half precision.

import * as A from "../attention.js";
import { bars } from "../bars.js";
import { curves } from "../chart.js";
import { button, choice, reading, row, slider } from "../controls.js";
import { decimals, percent, short } from "../draw.js";
import { number, numbers, whole, word } from "../fields.js";
import { heatmap } from "../heatmap.js";
import { make } from "../shared/dom.js";
import { lines } from "../shared/lines.js";
import { floats } from "../shared/numbers.js";
import { thumbnail } from "../thumbnail.js";

const LAYERS = [0, 1, 5], HEADS = 12, SENTENCES = 5, TOKENS = 13, SIDE = 32; // SIDE: how many of the output's numbers stand in a row
const MASKS = { full: () => A.full(), causal: () => A.causal(), words: (n) => (i, j) => j > 0 && j < n - 1 };
const SCORES = { scaled: () => A.scaled(), dot: () => A.dot(), cosine: () => A.cosine(10) };
// Where a head may look, by place.
const PLACES = [
  { name: "word before", weight: (w) => mean(w.slice(1).map((line, i) => line[i])) },
  { name: "itself", weight: (w) => mean(w.map((line, i) => line[i])) },
  { name: "word after", weight: (w) => mean(w.slice(0, -1).map((line, i) => line[i + 1])) },
  { name: "[CLS]", weight: (w) => mean(w.map((line) => line[0])) },
  { name: "[SEP]", weight: (w) => mean(w.map((line) => line[line.length - 1])) },
];
const CLEAR = 0.4; // of the weight, for a head to be called after a place
const mean = (list) => A.sum(list) / list.length;
const cosineOf = (a, b) => A.dotProduct(a, b) / (A.norm(a) * A.norm(b) || 1);

// The numbers of the file as arrays: q, k and v of a sentence in a layer are [token][head · width].
function reader(data) {
  const kept = new Map(), once = (key, make) => { if (!kept.has(key)) kept.set(key, make()); return kept.get(key); };
  const rowsOf = (text, wide) => { const flat = floats(text, true); return Array.from({ length: flat.length / wide }, (_, n) => Array.from(flat.subarray(n * wide, (n + 1) * wide))); };
  const wide = data.heads * data.width;
  return {
    sentence: (s) => data.sentences[s],
    whole: (s, layer) => once(`${s} ${layer}`, () => Object.fromEntries(["q", "k", "v"].map((name) => [name, rowsOf(data.sentences[s].layers[layer][name], wide)]))),
    head(s, layer, head) {
      return once(`${s} ${layer} ${head}`, () => Object.fromEntries(Object.entries(this.whole(s, layer)).map(([name, rows]) => [name, rows.map((line) => line.slice(head * data.width, (head + 1) * data.width))])));
    },
    hidden: (s) => once(`hidden ${s}`, () => rowsOf(data.sentences[s].hidden, wide)),
    projection: (layer) => once(`projection ${layer}`, () => ({ weight: rowsOf(data.projections[layer].weight, wide), bias: Array.from(floats(data.projections[layer].bias, true)) })),
  };
}

function build(stage, { state, data }) {
  const numbersOf = reader(data), wide = data.width;
  const attend = (s, layer, { q, k, v }) => A.attend({ query: q, key: k, value: v, score: SCORES[state.get("score")](), mask: MASKS[state.get("mask")](q.length), temperature: state.get("tau") });
  const headAt = (s, layer, head) => attend(s, layer, numbersOf.head(s, layer, head));

  const top = row(stage);
  choice(top, state, "sentence", { label: "sentence", options: data.sentences.map(({ text }, value) => ({ value, text })) });
  choice(top, state, "layer", { label: `layer, of ${data.depth}`, options: LAYERS.map((value) => ({ value, text: String(value) })) });
  const knobs = row(stage);
  slider(knobs, state, "tau", { label: "temperature τ", low: 0.1, high: 10, log: true, format: (x) => short(x, 2), ticks: [0.1, 1, 10] });
  choice(knobs, state, "mask", { label: "mask", options: [{ value: "full", text: "none" }, "causal", { value: "words", text: "hide [CLS] and [SEP]" }] });
  choice(knobs, state, "score", { label: "score", options: [{ value: "scaled", text: "scaled, as in the model" }, { value: "dot", text: "dot" }, { value: "cosine", text: "10 · cosine" }] });

  make("p", stage, { text: "All twelve heads of the layer, and one head that is as wide as all of them. Choose one", name: "part-title" });
  const gallery = make("div", stage, { name: "heads-gallery", role: "group", "aria-label": "Heads of the layer" });
  const pictures = Array.from({ length: HEADS + 1 }, (_, head) => {
    const one = make("button", gallery, { name: "heads-one" }), view = thumbnail(one, { label: head < HEADS ? `Weights of head ${head}` : "Weights of one wide head" });
    const name = make("span", one), kind = make("span", one, { name: "soft" });
    name.textContent = head < HEADS ? `head ${head}` : "one, 384 wide";
    if (head < HEADS) one.addEventListener("click", () => state.set({ head })); else one.disabled = true;
    return { one, view, kind };
  });

  const panels = make("div", stage, { name: "panels two heads-part" }), left = make("div", panels), right = make("div", panels);
  const title = make("p", left, { name: "part-title" });
  const picture = heatmap(left, { label: "Weights of the chosen head", most: 540, hover: (cell) => { if (cell) state.set({ token: cell.row }); } });
  make("p", right, { text: "Who reads whom: point at a word", name: "part-title" });
  const drawing = lines(make("div", right), { tell: () => {}, choose: () => {}, look: (at) => { if (at && at.side === "query") state.set({ token: at.n }); } });
  make("p", right, { text: "Where the head looks, by place: mean weight", name: "part-title heads-spaced" });
  const places = bars(right, { label: "Where the head looks", names: 92, row: 17 });

  const sense = make("h3", stage, { name: "heads-part" });
  const two = make("div", stage, { name: "panels" }), parts = [make("div", two), make("div", two)], third = make("div", two);
  const rows = parts.map((part, n) => ({ title: make("p", part, { name: "part-title" }), view: bars(part, { label: n ? "The word's weights in the other sentence" : "The word's weights in the first sentence", names: 62, row: 16 }) }));
  make("p", third, { text: "How alike the word's two vectors are, after each layer", name: "part-title" });
  const alike = curves(third, { label: "Cosine of the word's two vectors, layer by layer", height: 220, xName: "layers passed", yName: "cosine" });
  const said = make("p", third, { name: "part-note" });

  const mixed = make("h3", stage, { name: "heads-part" });
  make("p", stage, { text: "Twelve outputs of 32 numbers stand side by side; W_O, 384 × 384, mixes them into one vector of 384. Switch a head off, as if its rows of W_O were 0.", name: "part-note heads-note" });
  const switches = make("div", stage, { name: "heads-switches", role: "group", "aria-label": "Heads that are switched on" });
  const toggles = Array.from({ length: HEADS }, (_, head) => {
    const one = make("button", switches, { text: String(head), "aria-label": `head ${head}` });
    one.addEventListener("click", () => { const off = state.get("off"); state.set({ off: off.includes(head) ? off.filter((each) => each !== head) : [...off, head].sort((a, b) => a - b) }); });
    return one;
  });
  button(switches, "all on", () => state.set({ off: [] }), { name: "small" });
  const last = make("div", stage, { name: "panels" }), [a, b, c] = [0, 1, 2].map(() => make("div", last));
  make("p", a, { text: "How much each head adds: length of its part of the output", name: "part-title" });
  const lengths = bars(a, { label: "Length of each head's part of the output", names: 56, row: 13, high: (items) => Math.max(0.5, ...items.map(({ value }) => value)) });
  make("p", b, { text: "The layer's output for the word, 384 numbers", name: "part-title" });
  const strip = thumbnail(b, { label: "Output of the layer for the word", name: "heads-strip" });
  make("p", c, { text: "What the switched-off heads took away", name: "part-title" });
  const lost = thumbnail(c, { label: "Difference to the output with all heads", name: "heads-strip" });
  const readings = make("div", c, { name: "readings" }), change = reading(readings, "change of the output", "length of the difference, over the length of the output"), cosine = reading(readings, "cosine to the full output");
  make("p", stage, { text: `Numbers of ${data.model}: layers ${LAYERS.join(", ")} of ${data.depth} (counted from 0), all ${data.heads} heads, q, k, v and W_O in half precision. Temperature, mask and score are applied here; the later layers do not run again.`, name: "part-note" });

  // What each head adds to the output of one token: its output times its columns of W_O.
  function shares(s, layer, token, heads) {
    const { weight } = numbersOf.projection(layer);
    return heads.map(({ output }, head) => weight.map((line) => { let total = 0; for (let d = 0; d < wide; d++) total += output[token][d] * line[head * wide + d]; return total; }));
  }
  const folded = (vector) => Array.from({ length: vector.length / SIDE }, (_, n) => vector.slice(n * SIDE, (n + 1) * SIDE));

  return () => {
    const s = state.get("sentence"), layer = state.get("layer"), head = state.get("head"), { tokens, word: at, other } = numbersOf.sentence(s), n = tokens.length;
    const heads = Array.from({ length: HEADS }, (_, each) => headAt(s, layer, each)), { q, k } = numbersOf.whole(s, layer);
    const single = attend(s, layer, { q, k, v: null });
    pictures.forEach(({ one, view, kind }, each) => {
      const { weights } = each < HEADS ? heads[each] : single;
      view.update({ values: weights });
      one.setAttribute("aria-pressed", String(each === head));
      const measured = PLACES.map(({ weight }) => weight(weights)), best = measured.indexOf(Math.max(...measured));
      kind.textContent = `${measured[best] >= CLEAR ? PLACES[best].name : "several"}${each < HEADS ? "" : ", not in the model"}`;
    });
    const token = Math.min(state.get("token"), n - 1), now = heads[head], hidden = (i, j) => !now.visible[i][j];
    title.textContent = `Layer ${layer}, head ${head}`;
    picture.update({ values: now.weights, rows: tokens, columns: tokens, hidden, row: token });
    drawing.show({ at: { side: "query", n: token }, queries: tokens, keys: tokens, heads: [{ name: String(head), color: "var(--weight-fill)", weight: (i, j) => (hidden(i, j) ? -Infinity : now.weights[i][j]) }], threshold: 0.01, allowed: null, height: Math.min(30, 300 / n) });
    places.update(PLACES.map(({ name, weight }) => ({ name, value: weight(now.weights), text: decimals(weight(now.weights), 3) })));

    // the word in two sentences; a sentence without a partner shows the first pair
    const pair = other === null ? [0, 1] : [s, other], told = numbersOf.sentence(pair[0]).tokens[numbersOf.sentence(pair[0]).word];
    sense.textContent = `“${told}” in two sentences, layer ${layer}, head ${head}`;
    pair.forEach((each, place) => {
      const { text, tokens: names, word: where } = numbersOf.sentence(each), weights = headAt(each, layer, head).weights[where];
      rows[place].title.textContent = text;
      rows[place].view.update(weights.map((value, j) => ({ name: names[j], value, text: decimals(value, 3), kind: j === where ? "query" : "weight" })));
    });
    const [one, second] = pair.map((each) => numbersOf.hidden(each)), cosines = one.map((vector, depth) => [depth, cosineOf(vector, second[depth])]);
    alike.update({ lines: [{ kind: "output", points: cosines }], low: 0, high: cosines.length - 1, bottom: 0.5, top: 1, here: layer + 1 });
    said.textContent = `It starts with the same embedding (${short(cosines[0][1], 3)}; only its place and the norm differ) and leaves with ${short(cosines[cosines.length - 1][1], 3)}: what differs beyond that came from the other words, through attention.`;

    // W_O
    const added = shares(s, layer, token, heads), off = state.get("off"), { bias } = numbersOf.projection(layer);
    const total = bias.map((x, d) => x + A.sum(added.map((part) => part[d]))), gone = bias.map((_, d) => A.sum(off.map((each) => added[each][d]))), rest = total.map((x, d) => x - gone[d]);
    mixed.textContent = `W_O mixes the heads: the output of layer ${layer} for “${tokens[token]}”`;
    toggles.forEach((each, which) => each.setAttribute("aria-pressed", String(!off.includes(which))));
    lengths.update(added.map((part, which) => ({ name: `head ${which}`, value: off.includes(which) ? 0 : A.norm(part), ghost: A.norm(part), kind: which === head ? "output" : "weight", text: off.includes(which) ? "off" : short(A.norm(part), 2) })));
    const high = Math.max(...total.map(Math.abs));
    strip.update({ values: folded(rest), high, signed: true });
    lost.update({ values: folded(gone), high, signed: true });
    change(percent(A.norm(gone) / A.norm(total)));
    cosine(short(cosineOf(rest, total), 3));
  };
}

export const chapter = {
  number: 10,
  name: "heads",
  title: "Many heads and W_O",
  text: [
    "A layer asks several questions at once: each head has queries, keys and values of its own, and so weights of its own; these are the heads of MiniLM, a real model.",
    "Their outputs stand side by side, and one more matrix, W_O, mixes them into the vector that goes on.",
  ],
  predict: {
    question: "Twelve heads of width 32 or one head of width 384: both have equally many parameters. What can the twelve do that the one cannot?",
    options: ["Read the word before and the verb at once, with full weight each", "Compare longer vectors", "Use fewer multiplications"],
    answer: 0,
    because: "A head has one row of weights for a word, which sums to 1: to read two things it must split. Twelve heads have twelve rows.",
  },
  notice: [
    "Layer 0, head 2 reads the word before, whatever the words are; layer 1, head 8 mostly the word after; layer 1, head 1 lays most weight on [CLS], which is what heads do that have nothing to say about a word.",
    "The wide head at the end of the gallery has the same numbers in one row of scores, and so one pattern only: in layer 0 the strong scores of head 2 win, and what the other eleven read is lost.",
    "“bank” enters both sentences with the same embedding. In layer 5, head 7 it reads “river” in one and “loan” in the other, and the cosine of its two vectors falls: meaning comes from context.",
    "W_O takes from each head 32 numbers and adds up their parts, each spread over all 384 numbers of the output. Switch one off: the output changes everywhere a little, and the parts of the others stay.",
    "A head that W_O multiplies with zero might as well not be there, whatever its weights look like.",
  ],
  exercise: { number: 12 },
  experiments: [
    { command: "regard lab heads", about: "measures how alike heads are, at random and trained, and what several learn that one cannot." },
    { command: "regard lab context", about: "measures on 12 words how their senses come apart, and which heads see to it." },
    { command: "regard lab projection", about: "measures what W_O adds, and what each head is worth." },
  ],
  fields: {
    sentence: whole(0, 0, SENTENCES - 1), layer: { ...whole(0, 0, 5), read: (text) => (LAYERS.includes(Number(text)) ? Number(text) : undefined) }, head: whole(2, 0, HEADS - 1), token: whole(5, 0, TOKENS - 1),
    tau: number(1, 0.1, 10), mask: word("full", Object.keys(MASKS)), score: word("scaled", Object.keys(SCORES)), off: numbers([], 0, HEADS - 1, HEADS),
  },
  wide: true,
  build,
};
