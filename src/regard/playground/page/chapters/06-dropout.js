// Chapter 6: dropout of weights, with regard's own random numbers.

import * as A from "../attention.js";
import { button, reading, row, slider } from "../controls.js";
import { short } from "../draw.js";
import { number, whole } from "../fields.js";
import { heatmap } from "../heatmap.js";
import { normals } from "../random.js";
import { make } from "../shared/dom.js";

const WORDS = ["The", "cat", "sat", "on", "the", "mat", "today", "."], WIDTH = 4;
const normal = normals(7), draw = () => WORDS.map(() => Array.from({ length: WIDTH }, normal));
const QUERY = draw(), KEY = draw(), VALUE = WORDS.map((_, n) => [n % 2 ? 1 : 0, n < 4 ? 1 : -1]);
const PLAIN = A.attend({ query: QUERY, key: KEY, value: VALUE });

const attention = (state) => A.attend({ query: QUERY, key: KEY, value: VALUE, dropout: { p: state.get("p"), seed: state.get("seed") } });
const small = (state) => ({ result: attention(state), score: "scaled", rows: WORDS, columns: WORDS, dropout: state.get("p") > 0 ? { p: state.get("p") } : null });

// The mean of the dropped weights over `count` seeds from the current one on.
const averaged = { of: "", mean: null };
function average(p, seed, count) {
  const of = [p, seed, count].join();
  if (averaged.of !== of) {
    const total = PLAIN.weights.map((line) => line.map(() => 0)), keys = WORDS.map((_, j) => j);
    for (let n = 0; n < count; n++) {
      PLAIN.weights.forEach((line, i) => {
        const kept = A.dropoutKept({ p, seed: seed + n }, i, keys);
        line.forEach((w, j) => { if (kept[j]) total[i][j] += w / (1 - p) / count; });
      });
    }
    Object.assign(averaged, { of, mean: total });
  }
  return averaged.mean;
}

function build(stage, { state }) {
  const top = row(stage);
  slider(top, state, "p", { label: "p, probability of being dropped", low: 0, high: 0.9, step: 0.05, format: (x) => short(x, 2) });
  slider(top, state, "count", { label: "patterns averaged", low: 1, high: 400, step: 1, log: true });
  button(top, "another seed", () => state.set({ seed: (state.get("seed") % 9999) + 1 }));
  const panels = make("div", stage, { name: "panels" });
  const part = (title) => { const holder = make("div", panels); make("p", holder, { text: title, name: "part-title" }); return holder; };
  const plain = heatmap(part("Weights"), { label: "Weights without dropout", sums: true });
  const second = part("One pattern: dropped, the others × 1/(1 − p)"), dropped = heatmap(second, { label: "Weights with dropout", sums: true, press: (cell) => state.set({ row: cell.row }) });
  const third = part("Mean over the patterns"), mean = heatmap(third, { label: "Mean over the patterns", sums: true });
  const readings = make("div", stage, { name: "readings" });
  const seed = reading(readings, "seed"), share = reading(readings, "dropped"), factor = reading(readings, "the others × "), sums = reading(readings, "row sums", "smallest to largest"), far = reading(readings, "mean: largest difference to the weights");
  const code = make("p", stage, { name: "part-note" });

  return () => {
    const p = state.get("p"), from = state.get("seed"), { dropped: now, kept } = attention(state), middle = average(p, from, state.get("count"));
    const high = Math.max(...PLAIN.weights.flat()) * 1.3, shown = { rows: WORDS, columns: WORDS, high };
    const hidden = (i, j) => Boolean(kept) && !kept[i][j], at = Math.min(state.get("row"), WORDS.length - 1);
    plain.update({ ...shown, values: PLAIN.weights, row: at });
    dropped.update({ ...shown, values: now, hidden, row: at });
    mean.update({ ...shown, values: middle, row: at });
    const rows = now.map((line) => A.sum(line)), lost = kept ? kept.flat().filter((each) => !each).length : 0;
    seed(String(from));
    share(`${lost} of ${WORDS.length ** 2}`);
    factor(short(1 / (1 - p), 3));
    sums(`${short(Math.min(...rows), 2)} to ${short(Math.max(...rows), 2)}`);
    far(short(Math.max(...middle.flatMap((line, i) => line.map((x, j) => Math.abs(x - PLAIN.weights[i][j])))), 3));
    code.textContent = `The same pattern in Python: regard.attend(q, k, v, dropout=regard.Dropout(${short(p, 2)}, seed=${from}))`;
  };
}

export const chapter = {
  number: 6,
  name: "dropout",
  title: "Dropout",
  text: [
    "While a model is trained, each weight is dropped with probability p, after softmax, and the others are multiplied by 1/(1 − p).",
    "A query cannot rely on one key alone, and on average nothing has changed.",
  ],
  predict: {
    question: "A quarter of the weights are dropped and the others multiplied by 1/(1 − 0.25). What do the weights of a row add up to?",
    options: ["exactly 1", "less than 1", "1 on average, but more or less in any one row"],
    answer: 2,
    because: "The row is not normalized again. If a large weight is dropped the sum falls below 1, if only small ones are it rises above; the mean over all patterns is exactly 1.",
  },
  notice: [
    "Weights are dropped, not keys: the next row can still read a key that this one lost.",
    "Rows no longer sum to 1. Step through the output to see what that does.",
    "The mean over patterns comes back to the weights: its error falls with the square root of their number.",
    "A seed gives the same pattern everywhere: each pair (i, j) has a random number of its own, in this page and in every engine of regard.",
    "At inference nothing is dropped and nothing multiplied.",
  ],
  exercise: { number: 10 },
  experiments: [{ command: "regard lab dropout", about: "measures what stays the same on average, and what dropout is good for." }],
  fields: { p: number(0.3, 0, 0.9, 2), seed: whole(1, 0, 99999), count: whole(20, 1, 400) },
  row: 1,
  small,
  wide: true,
  build,
};
