// Chapter 5: temperature. The same scores at many temperatures at once, from one key to all keys.

import * as A from "../attention.js";
import { bars, columns } from "../bars.js";
import { curves } from "../chart.js";
import { presets, reading, row, slider } from "../controls.js";
import { short } from "../draw.js";
import { number, vector } from "../fields.js";
import { make } from "../shared/dom.js";

const LOW = 0.05, HIGH = 20, SIDE_BY_SIDE = [0.1, 0.5, 1, 2, 10], STEPS = 80;
const NAMES = ["the", "cat", "sat", "on", "mat"], COLORS = ["query", "key", "value", "output", "other"];
const TAUS = Array.from({ length: STEPS + 1 }, (_, n) => LOW * (HIGH / LOW) ** (n / STEPS));

const weightsAt = (scores, tau) => A.softmax(scores.map((x) => x / tau));
const names = (state) => state.get("scores").map((_, n) => NAMES[n] ?? `key ${n + 1}`);

// The scores as those of a query [1] with keys of width 1, so that every number can be stepped through.
const small = (state) => ({
  result: A.attend({ query: [[1]], key: state.get("scores").map((x) => [x]), value: null, score: A.dot(), temperature: state.get("tau") }),
  score: "dot", rows: ["query"], columns: names(state),
});

function build(stage, { state }) {
  const top = row(stage);
  slider(top, state, "tau", { label: "temperature τ", low: LOW, high: HIGH, log: true, format: (x) => short(x, 3), ticks: [0.1, 0.5, 1, 2, 10] });
  presets(top, state, [
    { text: "[2, 1, 0]", values: { scores: [2, 1, 0] } },
    { text: "five words", values: { scores: [0.5, 3, 2, 1, 2.6] } },
    { text: "a tie", values: { scores: [2, 2, 0] } },
  ], "Scores");
  const panels = make("div", stage, { name: "panels two" });
  const left = make("div", panels), right = make("div", panels);
  make("p", left, { text: "Scores: drag their tops", name: "part-title" });
  const scores = columns(left, { label: "Scores of the keys", low: -1, high: 4, height: 200, state, field: "scores" });
  make("p", right, { text: "Weights: softmax(scores / τ); dashed: 1/n", name: "part-title" });
  const weights = bars(right, { label: "Weights at the temperature of the slider", names: 52 });
  const readings = make("div", right, { name: "readings" });
  const entropy = reading(readings, "entropy", "in nats"), used = reading(readings, "keys in use", "e to the entropy"), largest = reading(readings, "largest weight");

  make("p", stage, { text: "The same scores at five temperatures", name: "part-title spaced" });
  const grid = make("div", stage, { name: "small-multiples" });
  const multiples = SIDE_BY_SIDE.map((tau) => {
    const part = make("div", grid);
    make("p", part, { text: `τ = ${tau}`, name: "multiple-title" });
    return { tau, part, view: columns(part, { label: `Weights at temperature ${tau}`, height: 120, names: false, numbers: false }) };
  });
  make("p", stage, { text: "Each weight against τ: at the left only the best key counts (tied ones share), at the right all get the same", name: "part-title spaced" });
  const chart = curves(stage, { label: "Weights against the temperature", height: 240, xName: "τ", yName: "weight", most: 1400, xFormat: (x) => short(x, 3) });

  return () => {
    const list = state.get("scores"), tau = state.get("tau"), labels = names(state), now = weightsAt(list, tau), h = A.entropy(now);
    const kind = (n) => COLORS[n % COLORS.length];
    scores.update(list.map((value, n) => ({ name: labels[n], value, kind: kind(n) })));
    weights.update(now.map((value, n) => ({ name: labels[n], value, kind: kind(n), ghost: 1 / list.length })));
    entropy(short(h, 3));
    used(`${short(Math.exp(h), 2)} of ${list.length}`);
    largest(short(Math.max(...now), 3));
    for (const { tau: each, view, part } of multiples) {
      view.update(weightsAt(list, each).map((value, n) => ({ name: labels[n], value, kind: kind(n), title: `${labels[n]}: ${short(value)}` })));
      part.classList.toggle("near", Math.abs(Math.log(each / tau)) < 0.12);
    }
    chart.update({ lines: list.map((_, n) => ({ name: labels[n], kind: kind(n), points: TAUS.map((each) => [each, weightsAt(list, each)[n]]) })), low: LOW, high: HIGH, logX: true, here: tau, room: 44 });
  };
}

export const chapter = {
  number: 5,
  name: "temperature",
  title: "Temperature",
  text: [
    "Scores are divided by the temperature τ before softmax: a small τ makes their differences larger, a large one smaller.",
    "So one number moves attention between two limits: all weight on the best key, and the same weight for every key.",
  ],
  predict: {
    question: "Two scores differ by 1. At τ = 1 the better key has e ≈ 2.7 times the weight of the other. How many times is it at τ = 0.5?",
    options: ["1.6 times", "2.7 times", "5.4 times", "7.4 times"],
    answer: 3,
    because: "The ratio of two weights is e^(difference/τ): e^(1/0.5) = e² ≈ 7.4. Halving τ squares the ratio.",
  },
  notice: [
    "The order of the weights never changes, only how far they are apart: the ratio of two weights is e^(difference of the scores/τ), and half the τ squares it.",
    "As τ → 0 the best key takes all: hard attention. Tied scores have the same weight at every τ; two best keys get ½ each in the limit.",
    "As τ → ∞ every one of the n keys gets 1/n (the dashed line), whatever the scores say.",
    "Entropy says how evenly the weights are spread: 0 if one key has all, ln n if all n have the same. Keys in use, e^entropy, says it as a number of keys: from 1 to n.",
  ],
  exercise: { number: 9, parts: ["cold", "hot", "ratio", "zero", "wide", "undo"] },
  experiments: [{ command: "regard lab temperature", about: "measures the regimes, and what τ is for in training, at inference and in distillation." }],
  fields: { tau: number(1, LOW, HIGH, 3), scores: { ...vector([0.5, 3, 2, 1, 2.6], 4), read: readScores } },
  small,
  build,
};

// Three to five scores: the presets have different numbers of keys.
function readScores(text) {
  const list = text.split(",").map((part) => (/^-?\d{1,3}(\.\d{1,4})?$/.test(part) ? Number(part) : NaN));
  return list.length >= 2 && list.length <= NAMES.length && list.every((x) => x >= -1 && x <= 4) ? list : undefined;
}
