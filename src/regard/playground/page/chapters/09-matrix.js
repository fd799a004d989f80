// Chapter 9: the n × n matrix. Rows sum to 1, columns do not; pointing at it says who reads whom.

import * as A from "../attention.js";
import { bars } from "../bars.js";
import { choice, reading, row, slider, toggle } from "../controls.js";
import { brief, decimals, short, thousands } from "../draw.js";
import { flag, number, whole, word } from "../fields.js";
import { heatmap } from "../heatmap.js";
import { normals } from "../random.js";
import { make } from "../shared/dom.js";
import { lines } from "../shared/lines.js";

const WIDTH = 4, HEADS = 12;

// The mini-course's map, as it is printed there.
const COURSE = [
  [0.7, 0.1, 0.05, 0.05, 0.1, 0.0],
  [0.1, 0.6, 0.2, 0.05, 0.0, 0.05],
  [0.0, 0.3, 0.5, 0.1, 0.0, 0.1],
  [0.0, 0.1, 0.1, 0.6, 0.1, 0.1],
  [0.1, 0.0, 0.0, 0.1, 0.3, 0.5],
  [0.0, 0.05, 0.05, 0.1, 0.2, 0.6],
];
const CAT = ["The", "cat", "sleeps", "on", "the", "mat"], RIVER = "The river rose because it had rained all night".split(" ");

// Scores of random queries and keys.
function computed(words, seed) {
  const normal = normals(seed), rows = () => words.map(() => Array.from({ length: WIDTH }, () => 1.3 * normal()));
  return A.attend({ query: rows(), key: rows() }).scores;
}
const SOURCES = {
  course: { title: "the mini-course's", words: CAT, logits: COURSE.map((line) => line.map((w) => (w ? Math.log(w) : -Infinity))), about: "“The cat sleeps on the mat” as the mini-course prints it; its zeros are hidden pairs. At τ = 1 and without pull these are its numbers." },
  random: { title: "random, 6 words", words: CAT, logits: computed(CAT, 3), about: "The same words with scores of random queries and keys." },
  longer: { title: "random, 9 words", words: RIVER, logits: computed(RIVER, 5), about: "Nine words with scores of random queries and keys." },
};

// The chosen scores, with `pull` added to one column: its key suits every query better.
function attention(state) {
  const { words, logits } = SOURCES[state.get("source")], pulled = Math.min(state.get("column"), words.length - 1), pull = state.get("pull");
  const rows = logits.map((line, i) => {
    const seen = line.map((x, j) => (state.get("causal") && j > i ? -Infinity : x + (j === pulled ? pull : 0)));
    return A.softmax(seen.map((x) => x / state.get("tau")));
  });
  return { words, weights: rows, hidden: (i, j) => logits[i][j] === -Infinity || (state.get("causal") && j > i) };
}
export const received = (weights) => A.transpose(weights).map(A.sum);

function build(stage, { state }) {
  const top = row(stage);
  choice(top, state, "source", { label: "weights", options: Object.entries(SOURCES).map(([value, { title }]) => ({ value, text: title })) });
  toggle(top, state, "causal", { label: "causal" });
  const sliders = row(stage);
  const pull = slider(sliders, state, "pull", { label: "pull", low: -3, high: 5, step: 0.1, format: (x) => short(x, 1) });
  const pullName = pull.element.querySelector("label");
  slider(sliders, state, "tau", { label: "temperature τ", low: 0.1, high: 10, log: true, format: (x) => short(x, 2), ticks: [0.1, 1, 10] });
  const about = make("p", stage, { name: "matrix-about soft" });

  const panels = make("div", stage, { name: "panels two" }), left = make("div", panels), right = make("div", panels);
  make("p", left, { text: "Rows read, columns are read; sums at the margins", name: "part-title" });
  const picture = heatmap(left, { label: "Weights of every word with every word", most: 540, sums: "both", hover: (cell) => { if (cell) state.set({ query: cell.row, column: cell.column, side: "cell" }); } });
  make("p", right, { text: "Who reads whom: point at a word", name: "part-title" });
  const drawing = lines(make("div", right), { tell: () => {}, choose: (query, column) => state.set({ query, column, side: "cell" }), look });
  const said = make("p", stage, { name: "sentence matrix-said", role: "status" });
  const lower = make("div", stage, { name: "panels two matrix-lower" }), one = make("div", lower), two = make("div", lower);
  make("p", one, { text: "Attention that each word receives: the sum of its column. Dashed: 1", name: "part-title" });
  const sums = bars(one, { label: "Attention received by each word", names: 66, row: 20, high: (items) => Math.max(2, ...items.map(({ value }) => value)) });
  const readings = make("div", one, { name: "readings" }), rowSum = reading(readings, "each row"), columnSum = reading(readings, "largest column"), all = reading(readings, "all weights");
  make("p", two, { text: "How large the matrix gets", name: "part-title" });
  slider(row(two), state, "length", { label: "tokens n", low: 6, high: 1e6, log: true, step: 1, format: (n) => thousands(n), ticks: [{ value: 1e3, text: "1 000" }, { value: 1e5, text: "100 000" }] });
  const sizes = make("div", two, { name: "readings" });
  const cells = reading(sizes, "numbers, n²"), memory = reading(sizes, "one head, 2 bytes each"), layer = reading(sizes, `a layer of ${HEADS} heads`);
  make("p", two, { text: "Ten times the tokens are a hundred times the numbers. Programs for long texts therefore never store the matrix: they go through it tile by tile (chapter 12).", name: "part-note" });

  function look(at) {
    if (!at) return;
    state.set(at.side === "query" ? { query: at.n, side: "query" } : { column: at.n, side: "key" });
  }
  const terms = (list) => list.map((x) => short(x, 2)).join(" + ");

  return () => {
    const { words, weights, hidden } = attention(state), n = words.length, i = Math.min(state.get("query"), n - 1), j = Math.min(state.get("column"), n - 1), side = state.get("side");
    about.textContent = SOURCES[state.get("source")].about;
    pullName.textContent = `pull of “${words[j]}”, added to the scores of its column`;
    picture.update({ values: weights, rows: words, columns: words, hidden, row: side === "key" ? null : i, column: side === "query" ? null : j });
    drawing.show({ at: side === "key" ? { side: "key", n: j } : { side: "query", n: i }, queries: words, keys: words, heads: [{ name: "", color: "var(--weight-fill)", weight: (a, b) => (hidden(a, b) ? -Infinity : weights[a][b]) }], threshold: 0.01, allowed: null, height: Math.min(46, 300 / n) });
    const columnsSums = received(weights), line = weights[i], other = A.transpose(weights)[j];
    said.textContent = {
      query: `Row ${i + 1}: what “${words[i]}” reads. ${terms(line)} = ${short(A.sum(line), 2)}.`,
      key: `Column ${j + 1}: who reads “${words[j]}”. ${terms(other)} = ${short(columnsSums[j], 2)}.`,
      cell: `Cell (${i + 1}, ${j + 1}): “${words[i]}” takes ${hidden(i, j) ? "nothing" : decimals(line[j])} of its output from the value of “${words[j]}”. In the other direction it is ${hidden(j, i) ? "hidden" : decimals(weights[j][i])}.`,
    }[side];
    sums.update(columnsSums.map((value, k) => ({ name: words[k], value, ghost: 1, kind: k === j ? "key" : "weight" })));
    rowSum(short(Math.max(...weights.map(A.sum)), 2));
    const best = columnsSums.indexOf(Math.max(...columnsSums));
    columnSum(`${words[best]}, ${decimals(columnsSums[best])}`);
    all(`${short(A.sum(columnsSums), 2)} = n`);
    const long = state.get("length"), squared = long * long;
    cells(long < 3e4 ? thousands(squared) : brief(squared));
    memory(`${brief(2 * squared)}B`);
    layer(`${brief(2 * HEADS * squared)}B`);
  };
}

export const chapter = {
  number: 9,
  name: "matrix",
  title: "The n × n matrix",
  text: [
    "Every word scores every word, so the weights of n words are an n × n matrix: row i says how much word i reads of each word, column j how much word j is read by each.",
    "Softmax makes each row sum to 1, for it divides what one query gives; nobody divides what a key receives.",
  ],
  predict: {
    question: "Six words, and each gives the word “mat” the weight 0.6. What does the column of “mat” sum to?",
    options: ["1", "0.6", "3.6", "6"],
    answer: 2,
    because: "6 · 0.6 = 3.6. A column can sum to anything from 0 to n; all columns together sum to n, because the rows do.",
  },
  notice: [
    "Row i is given by query i and sums to 1. Column j is received by key j: its sum is 1 only on average.",
    "Pull on a word: its column grows in every row, all others shrink, and every row still sums to 1. In real models the first token often has such a column.",
    "A large column sum means that many words read this one. It does not say that they need what they read.",
    "A cell and its mirror image differ: “cat” reads “sleeps” with another weight than “sleeps” reads “cat”. So one cell is one direction: how much of value j goes into output i.",
    "Causal: the first word is seen by all and the last one by itself only, so columns to the left sum to more.",
  ],
  exercise: { number: 14 },
  experiments: [{ command: "regard lab rows", about: "checks sums of rows and columns on random, trained and real heads, and what makes the matrix symmetric." }],
  fields: {
    source: word("course", Object.keys(SOURCES)), causal: flag(), pull: number(0, -3, 5, 1), tau: number(1, 0.1, 10), query: whole(1, 0, 8), column: whole(1, 0, 8),
    side: word("query", ["query", "key", "cell"]), length: whole(1000, 6, 1e6),
  },
  build,
};
