// Chapter 4: why queries, keys and values have matrices of their own.

import * as A from "../attention.js";
import { presets, reading, row, slider, toggle } from "../controls.js";
import { short } from "../draw.js";
import { flag, number, vectors } from "../fields.js";
import { heatmap } from "../heatmap.js";
import { plane } from "../plane.js";
import { make } from "../shared/dom.js";

const WORDS = ["the", "dog", "bites", "the man", "today"], EXTENT = 2.2;
const FIRST = [[-0.6, -0.5], [1.2, 0.3], [0.5, 1.3], [-1.1, 0.9], [0.2, -1.2]];

const turned = (degrees) => {
  const angle = (degrees * Math.PI) / 180, c = Math.cos(angle), s = Math.sin(angle);
  return [[c, s], [-s, c]]; // for rows: x · W
};

function attention(state) {
  const x = state.get("x"), wq = turned(state.get("q")), wk = state.get("shared") ? wq : turned(state.get("k")), wv = turned(state.get("v"));
  return A.attend({ query: A.product(x, wq), key: A.product(x, wk), value: A.product(x, wv) });
}
const small = (state) => ({ result: attention(state), score: "scaled", rows: WORDS, columns: WORDS });

// The largest difference between a matrix and its transpose.
const asymmetry = (m) => Math.max(...m.flatMap((line, i) => line.map((x, j) => Math.abs(x - m[j][i]))));

function build(stage, { state }) {
  const top = row(stage);
  toggle(top, state, "shared", { label: "one matrix for queries and keys: W_K = W_Q" });
  presets(top, state, [
    { text: "look at what bites", values: { shared: false, q: 60, k: 0 } },
    { text: "shared", values: { shared: true, q: 0 } },
    { text: "opposite", values: { shared: false, q: 180, k: 0 }, title: "every word looks for what is least like it" },
  ], "Try");
  const sliders = row(stage), degrees = { low: -180, high: 180, step: 5, format: (x) => `${x}°` };
  slider(sliders, state, "q", { label: "turn W_Q", ...degrees });
  const key = slider(sliders, state, "k", { label: "turn W_K", ...degrees });
  slider(sliders, state, "v", { label: "turn W_V", ...degrees });
  const panels = make("div", stage, { name: "panels" }), one = make("div", panels), two = make("div", panels), three = make("div", panels);
  make("p", one, { text: "Words: drag them", name: "part-title" });
  const view = plane(one, state, {
    label: "Embeddings of the words", extent: EXTENT, most: 420,
    vectors: () => {
      const { output } = attention(state), at = state.get("row");
      return [{ name: `output of ${WORDS[at] ?? WORDS[0]}`, kind: "output", at: output[at] ?? output[0] }, ...state.get("x").map((each, index) => ({ name: WORDS[index], kind: "key", at: each, field: "x", index }))];
    },
  });
  make("p", two, { text: "Scores Q Kᵀ / √d", name: "part-title" });
  const scores = heatmap(two, { label: "Scores of all pairs", hover: (cell) => mark(cell), press: (cell) => state.set({ row: cell.row }) });
  make("p", three, { text: "Weights: softmax of each row", name: "part-title" });
  const weights = heatmap(three, { label: "Weights of all pairs", hover: (cell) => mark(cell), press: (cell) => state.set({ row: cell.row }), sums: true });
  const readings = make("div", stage, { name: "readings" });
  const ofScores = reading(readings, "scores: largest |S − Sᵀ|"), ofWeights = reading(readings, "weights: largest |A − Aᵀ|"), own = reading(readings, "weight on oneself, mean");
  const sentence = make("p", stage, { name: "sentence", text: "Point at a pair to compare it with its mirror image." });

  function mark(cell) {
    if (!cell) return;
    const { scores: s, weights: w } = attention(state), { row: i, column: j } = cell;
    sentence.textContent = i === j ? `${WORDS[i]} looks at itself with weight ${short(w[i][i], 3)}.`
      : `${WORDS[i]} → ${WORDS[j]}: score ${short(s[i][j], 3)}, weight ${short(w[i][j], 3)}. Back, ${WORDS[j]} → ${WORDS[i]}: score ${short(s[j][i], 3)}, weight ${short(w[j][i], 3)}.`;
  }

  return () => {
    const result = attention(state), high = Math.max(...result.scores.flat().map(Math.abs), 0.01), at = Math.min(state.get("row"), WORDS.length - 1);
    key.input.disabled = state.get("shared");
    view.update();
    scores.update({ values: result.scores, rows: WORDS, columns: WORDS, high, signed: true, row: at });
    weights.update({ values: result.weights, rows: WORDS, columns: WORDS, high: 1, row: at });
    ofScores(short(asymmetry(result.scores), 3));
    ofWeights(short(asymmetry(result.weights), 3));
    own(short(A.sum(result.weights.map((line, i) => line[i])) / WORDS.length, 3));
  };
}

export const chapter = {
  number: 4,
  name: "separate",
  title: "Why separate Q, K and V",
  text: [
    "Each word is turned into three vectors by three matrices: what it looks for, what it can be found by, and what it hands over.",
    "Share a matrix and watch what becomes impossible.",
  ],
  predict: {
    question: "Queries and keys share one matrix, W_Q = W_K. What becomes symmetric, so that i → j equals j → i?",
    options: ["the scores", "the weights", "both"],
    answer: 0,
    because: "q_i · k_j = q_j · k_i when both come from the same matrix. But softmax divides each row by its own sum, and the sums differ, so the weights are not symmetric.",
  },
  notice: [
    "With one matrix the scores are symmetric to the last digit; the weights are not.",
    "With one matrix a word scores itself by the square of its length, which is never negative: words like to look at themselves.",
    "With two, dog can look for bites without bites looking for dog: a relation has a direction.",
    "W_V changes no weight at all; it decides what is handed over, so only the purple output moves.",
  ],
  exercise: { number: 8 },
  experiments: [
    { command: "regard lab symmetry", about: "measures what queries and keys lose when they share one projection." },
    { command: "regard lab rows", about: "shows what rows and columns of a map mean." },
  ],
  fields: { x: vectors(FIRST, EXTENT, 2, FIRST.length), shared: flag(true), q: number(0, -180, 180, 0), k: number(0, -180, 180, 0), v: number(0, -180, 180, 0) },
  row: 1,
  small,
  wide: true,
  build,
};
