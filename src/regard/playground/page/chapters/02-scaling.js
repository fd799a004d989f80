// Chapter 2: why scores are divided by √d_k. Random queries and keys grow wider under the slider.

import * as A from "../attention.js";
import { columns } from "../bars.js";
import { curves, histogram } from "../chart.js";
import { button, reading, row, slider } from "../controls.js";
import { short } from "../draw.js";
import { whole } from "../fields.js";
import { normals } from "../random.js";
import { make } from "../shared/dom.js";

const WIDEST = 512, PAIRS = 512, KEYS = 20, REACH = 40;
const WAYS = [
  { name: "none", title: "as they are: q · k", kind: "query", divisor: () => 1 },
  { name: "root", title: "divided by √d_k", kind: "weight", divisor: Math.sqrt },
  { name: "whole", title: "divided by d_k", kind: "other", divisor: (d) => d },
];

// The dot products of PAIRS random pairs at every width up to WIDEST: each width adds one product to the one before.
const tables = new Map();
function products(seed) {
  if (!tables.has(seed)) {
    const normal = normals(seed), table = Array.from({ length: WIDEST + 1 }, () => new Float64Array(PAIRS));
    for (let n = 0; n < PAIRS; n++) for (let d = 1; d <= WIDEST; d++) table[d][n] = table[d - 1][n] + normal() * normal();
    tables.clear();
    tables.set(seed, table);
  }
  return tables.get(seed);
}

// Entropy and gradient of rows of KEYS keys, averaged over the rows of a table. The gradient is the norm of ∂w/∂scores.
function averages(table, d, divisor) {
  let entropy = 0, gradient = 0, rows = 0;
  for (let start = 0; start + KEYS <= PAIRS; start += KEYS) {
    const weights = A.softmax(Array.from(table[d].subarray(start, start + KEYS), (x) => x / divisor));
    entropy += A.entropy(weights);
    gradient += slope(weights);
    rows += 1;
  }
  return { entropy: entropy / rows, gradient: gradient / rows };
}
function slope(weights) {
  // Σᵢⱼ (wᵢ(1[i = j] − wⱼ))² without the matrix
  const squares = weights.map((w) => w * w), s2 = A.sum(squares), s3 = A.sum(weights.map((w) => w ** 3));
  return Math.sqrt(Math.max(s2 - 2 * s3 + s2 * s2, 0));
}

const WIDTHS = Array.from({ length: 37 }, (_, n) => Math.max(1, Math.round(2 ** (n / 4)))).filter((d, n, all) => d <= WIDEST && d !== all[n - 1]);
const swept = new Map();
function sweep(seed) {
  if (!swept.has(seed)) {
    swept.clear();
    const table = products(seed);
    swept.set(seed, WAYS.map(({ divisor }) => WIDTHS.map((d) => ({ d, ...averages(table, d, divisor(d)) }))));
  }
  return swept.get(seed);
}

function build(stage, { state }) {
  const top = row(stage);
  slider(top, state, "d", { label: "width d_k of queries and keys", low: 1, high: WIDEST, step: 1, log: true, format: (d) => String(Math.round(d)), ticks: [1, 8, 64, 512] });
  button(top, "new random numbers", () => state.set({ seed: (state.get("seed") % 99) + 1 }));
  const rows = WAYS.map(({ title, kind, name }) => {
    const block = make("div", stage, { name: "way" });
    make("p", block, { text: title, name: `part-title way-title of-${kind}` });
    const panels = make("div", block, { name: "way-panels" });
    const left = make("div", panels), middle = make("div", panels), right = make("div", panels, { name: "readings upright" });
    make("p", left, { text: `Scores of ${PAIRS} pairs`, name: "way-part" });
    make("p", middle, { text: `Weights: softmax of ${KEYS} of these scores`, name: "way-part" });
    return {
      scores: histogram(left, { label: `Scores ${title}`, height: 130, xName: "score" }),
      weights: columns(middle, { label: `Weights of ${KEYS} keys, ${title}`, height: 130, names: false, numbers: false }),
      spread: reading(right, "spread of scores", "standard deviation"),
      entropy: reading(right, "entropy", `of ${KEYS} weights, mean over ${Math.floor(PAIRS / KEYS)} queries; ln ${KEYS} = ${short(Math.log(KEYS), 2)} is even`),
      gradient: reading(right, "gradient", "norm of ∂weights/∂scores"), kind, name,
    };
  });
  const panels = make("div", stage, { name: "panels two" });
  const one = make("div", panels), two = make("div", panels);
  make("p", one, { text: `Entropy of the weights: 0 is all on one key, ln ${KEYS} ≈ ${short(Math.log(KEYS), 1)} is even`, name: "part-title" });
  const entropies = curves(one, { label: "Entropy of the weights against d_k for the three ways", xName: "d_k", yName: "nats" });
  make("p", two, { text: "Gradient: how far weights move with the scores", name: "part-title" });
  const gradients = curves(two, { label: "Gradient of the weights against d_k for the three ways", xName: "d_k", yName: "norm" });

  return () => {
    const d = Math.round(state.get("d")), seed = state.get("seed"), table = products(seed), all = sweep(seed);
    rows.forEach((part, n) => {
      const divisor = WAYS[n].divisor(d), numbers = Array.from(table[d], (x) => x / divisor);
      const mean = A.sum(numbers) / PAIRS, deviation = Math.sqrt(A.sum(numbers.map((x) => (x - mean) ** 2)) / PAIRS);
      part.scores.update({ numbers, low: -REACH, high: REACH, bins: 64, kind: part.kind });
      const weights = A.softmax(numbers.slice(0, KEYS));
      part.weights.update(weights.map((value, key) => ({ name: String(key), value, kind: part.kind, title: `key ${key}: ${short(value)}` })));
      const { entropy, gradient } = averages(table, d, divisor);
      part.spread(short(deviation, 2));
      part.entropy(short(entropy, 2));
      part.gradient(short(gradient, 3));
    });
    const lines = (what) => WAYS.map(({ kind }, n) => ({ kind, points: all[n].map((at) => [at.d, at[what]]) }));
    const named = (what) => lines(what).map((line, n) => ({ ...line, name: ["q · k", "÷ √d_k", "÷ d_k"][n] }));
    entropies.update({ lines: named("entropy"), low: 1, high: WIDEST, top: 3.2, logX: true, here: d, room: 52 });
    gradients.update({ lines: named("gradient"), low: 1, high: WIDEST, top: 0.4, logX: true, here: d, room: 52 });
  };
}

export const chapter = {
  number: 2,
  name: "scaling",
  title: "Why √d_k",
  text: [
    "A dot product of wider vectors is a sum of more terms, so scores spread out as queries and keys get wider, and softmax of large scores puts everything on one key.",
    "Dividing by √d_k keeps the spread at 1, whatever the width.",
  ],
  predict: {
    question: "Queries and keys of random numbers get four times as wide. What happens to the spread (the standard deviation) of q · k?",
    options: ["it stays", "it doubles", "it becomes four times as large", "sixteen times"],
    answer: 1,
    because: "The variance of a sum of d independent products is d, so the standard deviation is √d: four times the width, twice the spread. That is why the divisor is √d_k and not d_k.",
  },
  notice: [
    "Unscaled, the spread is √d_k: at d_k = 64 it is about 8, and 1 after scaling. One of the 20 weights takes most of the whole.",
    "Where one weight is near 1 the gradient is near 0: a change of the scores changes the weights hardly at all, so training gets no sign which way to go, and the layer can hardly learn to look elsewhere. The number shown is the mean of 25 rows; where two keys share the weight, some gradient is left.",
    "The divisor is √d_k because that is the spread itself. Divided by it, the spread is 1 and the curves are flat: weights as even at any width.",
    "Dividing by d_k is too much: the spread becomes 1/√d_k (0.13 at 64), the scores shrink to nothing and the weights become even, whatever the keys say.",
  ],
  exercise: { number: 6, parts: ["two", "four", "scaled", "weights"] },
  experiments: [
    { command: "regard lab scaling", about: "repeats this with intervals over many draws." },
    { command: "regard lab variance", about: "measures how large q · k gets with the width." },
    { command: "regard lab saturation", about: "has the derivative that is left at [10, 20, 30]." },
  ],
  fields: { d: whole(64, 1, WIDEST), seed: whole(1, 1, 99) },
  build,
};
