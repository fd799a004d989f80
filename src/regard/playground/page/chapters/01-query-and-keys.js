// Chapter 1: a query meets keys. Six scores say how well they match, softmax makes weights of the scores.

import * as A from "../attention.js";
import { bars } from "../bars.js";
import { button, presets, row, slider } from "../controls.js";
import { each, set, shade, short } from "../draw.js";
import { number, vector, vectors, word } from "../fields.js";
import { plane } from "../plane.js";
import { make } from "../shared/dom.js";

const EXTENT = 2.4, CELLS = 28, MOST_KEYS = 6;
const SCORES = {
  dot: { name: "dot", formula: "q · k" },
  scaled: { name: "scaled dot", formula: "q · k / √d" },
  general: { name: "general", formula: "q · W k" },
  cosine: { name: "cosine", formula: "q · k / |q||k|" },
  additive: { name: "additive", formula: "v · tanh(W₁q + W₂k)" },
  concat: { name: "MLP", formula: "v · relu(W[q; k] + b)" },
};

const turned = (degrees) => {
  const angle = (degrees * Math.PI) / 180, [c, s] = [Math.cos(angle), Math.sin(angle)].map((x) => Number(x.toFixed(12))); // 90° has a cosine of 0
  return [[c, -s], [s, c]];
};

function scoreOf(name, state) {
  const w1 = turned(state.get("w1")), w2 = turned(state.get("w2")), v = turned(state.get("v")).map(([cos]) => Math.SQRT2 * cos); // 45° is [1, 1]
  return {
    dot: A.dot(), scaled: A.scaled(), cosine: A.cosine(), general: A.general(turned(state.get("w"))),
    additive: A.additive(w1, w2, v), concat: A.concat(w1, w2, [0, 0], v, "relu"),
  }[name];
}

const names = (state) => state.get("keys").map((_, n) => `Word ${n + 1}`);
const attention = (state, name = state.get("score")) => A.attend({ query: [state.get("query")], key: state.get("keys"), value: state.get("keys"), score: scoreOf(name, state) });
const small = (state) => ({ result: attention(state), score: state.get("score"), rows: ["query"], columns: names(state) });

function build(stage, { state }) {
  const panels = make("div", stage, { name: "panels two" });
  const left = make("div", panels), right = make("div", panels);
  make("p", left, { text: "Drag the query and the keys", name: "part-title" });
  const view = plane(left, state, {
    label: "Query, keys and output in the plane", extent: EXTENT, most: 520, under: field,
    vectors: () => {
      const { output } = attention(state);
      return [
        { name: "output", kind: "output", at: output[0] },
        ...state.get("keys").map((at, index) => ({ name: `k${index + 1}`, kind: "key", at, field: "keys", index })),
        { name: "q", kind: "query", at: state.get("query"), field: "query" },
      ];
    },
  });
  make("p", left, { text: "k1 is the key of word 1, and so on. Shading: the score that a key would get there, dark is high. Purple: the output, the keys averaged by their weights (each key is its own value here).", name: "part-note" });
  const tools = row(left, "below");
  presets(tools, state, [
    { text: "three words", values: { query: [1, 0], keys: [[1, 0], [0, 1], [1, 1]] }, title: "the mini-course: the query is word 1" },
    { text: "a long key", values: { query: [1, 0], keys: [[1, 0], [1.1, 1.9], [-1, 0.5]] } },
    { text: "opposite", values: { query: [1, 0.5], keys: [[1, 0.5], [-1, -0.5], [-0.5, 1]] } },
  ], "Try");
  const change = make("div", tools, { name: "key-buttons" });
  const more = button(change, "+ key", () => { const keys = state.get("keys"); if (keys.length < MOST_KEYS) state.set({ keys: [...keys, [-1, 1 - 0.6 * (keys.length - 3)]] }); });
  const fewer = button(change, "− key", () => { const keys = state.get("keys"); if (keys.length > 1) state.set({ keys: keys.slice(0, -1) }); });

  make("p", right, { text: "Score", name: "part-title" });
  const cards = make("div", right, { name: "score-cards", role: "group", "aria-label": "Score function" });
  const buttons = Object.entries(SCORES).map(([name, { name: title, formula }]) => {
    const card = make("button", cards, { name: "score-card" });
    make("span", card, { text: title, name: "score-name" });
    make("span", card, { text: formula, name: "score-formula" });
    const strip = make("span", card, { name: "strip" });
    card.addEventListener("click", () => state.set({ score: name }));
    return { name, card, strip };
  });
  const turns = row(right);
  const general = slider(turns, state, "w", { label: "turn W", low: -180, high: 180, step: 5, format: (x) => `${x}°` });
  const first = slider(turns, state, "w1", { label: "turn W₁ (query)", low: -180, high: 180, step: 5, format: (x) => `${x}°` });
  const second = slider(turns, state, "w2", { label: "turn W₂ (key)", low: -180, high: 180, step: 5, format: (x) => `${x}°` });
  const third = slider(turns, state, "v", { label: "turn v", low: -180, high: 180, step: 5, format: (x) => `${x}°` });
  const scores = make("div", right);
  make("p", scores, { text: "Scores", name: "part-title" });
  const scoreBars = bars(scores, { label: "Scores of the keys", low: -3, high: 3, format: (x) => short(x, 3), names: 64 });
  make("p", scores, { text: "Weights: softmax of the scores", name: "part-title weights-title" });
  const weightBars = bars(scores, { label: "Weights of the keys", high: 1, names: 64 });
  const sentence = make("p", right, { name: "sentence", "aria-live": "off" });

  // The score of a key at each place of the plane, as shading.
  function field(group, place, scale) {
    const score = scoreOf(state.get("score"), state), query = state.get("query"), side = (2 * EXTENT) / CELLS, values = [];
    for (let i = 0; i < CELLS; i++) for (let j = 0; j < CELLS; j++) values.push([-EXTENT + (j + 0.5) * side, EXTENT - (i + 0.5) * side]);
    const scored = values.map((at) => score(query, at)), low = Math.min(...scored), high = Math.max(...scored);
    set(group, { class: "field", opacity: "0.38" });
    each(group, "rect", values, ([x, y], n) => {
      const [left, top] = place([x - side / 2, y + side / 2]);
      return { x: left, y: top, width: side * scale + 0.6, height: side * scale + 0.6, fill: shade(high - low < 1e-9 ? 0 : 0.85 * ((scored[n] - low) / (high - low))).fill };
    });
  }

  return () => {
    const chosen = state.get("score"), { scores: [scored], weights: [weights], output } = attention(state), labels = names(state);
    view.update();
    for (const { name, card, strip } of buttons) {
      card.setAttribute("aria-pressed", String(name === chosen));
      const { weights: [own] } = attention(state, name);
      while (strip.childElementCount > own.length) strip.lastElementChild.remove();
      own.forEach((w, n) => { const bar = strip.children[n] ?? make("i", strip); bar.style.height = `${Math.max(100 * w, 3)}%`; });
    }
    general.element.hidden = chosen !== "general";
    first.element.hidden = second.element.hidden = third.element.hidden = chosen !== "additive" && chosen !== "concat";
    more.disabled = labels.length >= MOST_KEYS;
    fewer.disabled = labels.length <= 1;
    scoreBars.update(scored.map((value, n) => ({ name: labels[n], value, kind: "key" })));
    weightBars.update(weights.map((value, n) => ({ name: labels[n], value })));
    const best = weights.indexOf(Math.max(...weights));
    sentence.textContent = `${labels[best]} gets ${short(weights[best], 3)} of the weight; the output is (${output[0].map((x) => short(x, 2)).join(", ")}).`;
  };
}

export const chapter = {
  number: 1,
  name: "query-and-keys",
  title: "A query looks at keys",
  text: [
    "Attention compares one vector, the query, with many others, the keys: a score says how well they match, and softmax turns the scores into weights that add up to 1.",
    "The output is the average of what the keys stand for, by these weights.",
  ],
  predict: {
    question: "One key points exactly where the query points. Another is twice as long but turned away by 60°. Which of them gets more weight from the plain dot product?",
    options: ["the one that points the same way", "the long one", "both the same"],
    answer: 2,
    because: "q · k = |q| |k| cos(angle): twice the length makes up exactly for cos 60° = ½. Make it a bit longer and it wins. Only the cosine ignores lengths.",
  },
  notice: [
    "The dot product is |q| |k| cos(angle): the length of a key and its direction decide. Pull a key on the query's side outward and its weight grows; on the far side it shrinks. Under the cosine nothing changes: only the direction counts.",
    "The scaled dot product is the dot product divided by √d, here √2: the same keys win in the same order, but scores are closer together and the weights more even.",
    "In the additive score W₁ turns the query and W₂ the key before they are added, and v says how much each component of the bent sum counts. It levels off because tanh cannot exceed 1: beyond some length a key gains nothing.",
    "The output stays between the keys, which are the values here: the weights are positive and add up to 1, and such an average cannot leave what it averages.",
  ],
  exercise: { number: 1, parts: ["scores", "weights"] },
  experiments: [
    { command: "regard lab scores", about: "trains with all six scores and measures what each costs and learns." },
    { command: "regard explain --example", about: "works the three words out." },
  ],
  fields: {
    query: vector([1, 0], EXTENT),
    keys: vectors([[1, 0], [0, 1], [1, 1]], EXTENT, 2, MOST_KEYS),
    score: word("scaled", Object.keys(SCORES)),
    w: number(90, -180, 180, 0), w1: number(0, -180, 180, 0), w2: number(0, -180, 180, 0), v: number(45, -180, 180, 0),
  },
  small,
  build,
};
