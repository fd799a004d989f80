// Chapter 0: a fixed filter, a recurrence and attention are asked for something far back.

import * as A from "../attention.js";
import { curves } from "../chart.js";
import { reading, row, slider } from "../controls.js";
import { percent, short } from "../draw.js";
import { number, whole } from "../fields.js";
import { heatmap } from "../heatmap.js";
import { make } from "../shared/dom.js";

const WORDS = "Anna put the key under the old stone by the garden gate and then went to work ; where is it ?".split(" ");
const LAST = WORDS.length - 1, FIRST = 3, FILTER = 3;

// How much each position contributes to the last one. Layers of a filter of width 3 that averages a word and the two before it:
export function filtered(layers) {
  let reach = [1];
  for (let n = 0; n < layers; n++) {
    const next = new Array(reach.length + FILTER - 1).fill(0);
    reach.forEach((x, at) => { for (let k = 0; k < FILTER; k++) next[at + k] += x / FILTER; });
    reach = next;
  }
  return WORDS.map((_, j) => reach[LAST - j] ?? 0);
}
// A state that keeps the share a of itself at each step and takes 1 − a of the new word:
export const recurrent = (a) => WORDS.map((_, j) => (1 - a) * a ** (LAST - j));
// A query that matches the wanted word with score s, and every other word with 0:
export const attended = (s, at) => A.softmax(WORDS.map((_, j) => (j === at ? s : 0)));

function build(stage, { state }) {
  const top = row(stage);
  slider(top, state, "at", { label: "asked for", low: 0, high: LAST - 1, step: 1, format: (n) => `“${WORDS[n]}”, ${LAST - n} back` });
  slider(top, state, "layers", { label: "layers of the filter", low: 1, high: 12, step: 1 });
  slider(top, state, "memory", { label: "kept by the recurrence", low: 0.3, high: 0.98, step: 0.01, format: (x) => short(x, 2) });
  slider(top, state, "match", { label: "score of the match", low: 0, high: 10, step: 0.5, format: (x) => short(x, 1) });
  make("p", stage, { text: "How much of each word reaches the last one (click a word to ask for it)", name: "part-title" });
  const view = heatmap(stage, { label: "Contribution of each word to the last, for filter, recurrence and attention", most: 1500, press: ({ column }) => state.set({ at: Math.min(column, LAST - 1) }), hover: () => {} });
  const readings = make("div", stage, { name: "readings" });
  const values = ["filter", "recurrence", "attention"].map((name) => reading(readings, `${name}: of the word asked for`)), steps = reading(readings, "steps between: filter · recurrence · attention");
  make("p", stage, { text: "What is left of a word against how far back it stands", name: "part-title spaced" });
  const chart = curves(stage, { label: "What is left of a word against its distance", xName: "words back", yName: "share", most: 1400 });

  return () => {
    const at = state.get("at"), layers = state.get("layers"), memory = state.get("memory"), match = state.get("match");
    const rows = [filtered(layers), recurrent(memory), attended(match, at)], back = LAST - at;
    view.update({ values: rows, rows: ["filter", "recurrence", "attention"], columns: WORDS, high: 0.6, at: { row: 2, column: at }, numbers: true, format: (x) => (x < 0.005 ? "" : short(x, 2)) });
    values.forEach((show, n) => show(percent(rows[n][at])));
    steps(`${Math.ceil(back / (FILTER - 1))} · ${back} · 1`);
    const along = (of) => WORDS.slice(0, -1).map((_, j) => [LAST - j, of(j)]).reverse();
    chart.update({
      lines: [
        { name: "attention", kind: "weight", points: along((j) => attended(match, j)[j]) }, { name: "recurrence", kind: "key", points: along((j) => rows[1][j]) },
        { name: "filter", kind: "query", points: along((j) => rows[0][j]) },
      ],
      low: 1, high: LAST, top: 1, here: back, room: 84,
    });
  };
}

export const chapter = {
  number: 0,
  name: "why",
  title: "Why attention at all",
  text: [
    "The last word asks for something that was said long before. A filter looks at fixed places near by, a recurrence carries a summary from word to word, and attention looks at every word and takes the one that matches.",
    "Ask for a word farther and farther back, and watch what is left of it.",
  ],
  predict: {
    question: "A recurrence keeps 80 % of its state at each word. How much of a word that stands 20 back is left in it, compared with the newest word?",
    options: ["20 %", "about 4 %", "about 1 %"],
    answer: 2,
    because: "0.8²⁰ ≈ 0.012: what is kept shrinks by the same factor at each step, so it is gone exponentially fast. A larger factor keeps longer but takes less of anything new.",
  },
  notice: [
    "A filter sees nothing at all beyond its reach: two words more for each layer. What it sees is blurred, and the places are fixed.",
    "The recurrence fades with distance. Keeping more of the past leaves less room for the present: the row adds up to 1.",
    "Attention's curve is flat: distance does not enter. What enters is the match; with score 0 all words get the same.",
    "The price: attention compares with every word, so n words cost n² comparisons.",
  ],
  exercise: { number: 17 },
  experiments: [{ command: "regard lab why", about: "trains all three on a search far back and measures how far each gets." }],
  fields: { at: whole(FIRST, 0, LAST - 1), layers: whole(3, 1, 12), memory: number(0.8, 0.3, 0.98, 2), match: number(6, 0, 10, 1) },
  wide: true,
  build,
};
