// Chapter 7: positions. Without them the order of the words is invisible; five schemes, and what each says of a distance.

import * as A from "../attention.js";
import { bars } from "../bars.js";
import { curves } from "../chart.js";
import { button, choice, reading, row, slider } from "../controls.js";
import { short } from "../draw.js";
import { number, whole, word } from "../fields.js";
import { heatmap } from "../heatmap.js";
import { order, permutation } from "../order.js";
import { normals, uniforms } from "../random.js";
import { make } from "../shared/dom.js";

const WORDS = ["the", "dog", "bit", "the", "man"], SMALL = 4; // width of the sentence's vectors
const TRAINED = 128, LONGEST = 256, WIDTH = 32; // of the chart over distances
const BUCKETS = 32, HEADS = 8;

const SCHEMES = {
  none: { title: "none", enters: [], about: "No positions: a query cannot tell a near key from a far one.", beyond: "Distance plays no part, however long the text." },
  sinusoidal: { title: "sinusoidal", enters: ["embeddings"], about: "A row of sines and cosines for each place is added to the word's vector before the first layer; so it reaches Q, K and V.", beyond: "The formula has a row for every place, but W_Q and W_K were trained with the first 128 rows only: what they make of later ones was never learned." },
  learned: { title: "learned", enters: ["embeddings"], about: "A table with a row for each place, learned with the rest, is added to the word's vector. (Numbers here are made up.)", beyond: "The table ends: there is no row for place 128, so nothing can be computed there. The lines stop." },
  t5: { title: "T5", enters: ["scores"], about: "A learned number for each distance is added to the score; far distances share numbers in wider and wider buckets. (Numbers here are made up.)", beyond: "All distances from 128 on share the last bucket: far is far, and the line is flat." },
  rotary: { title: "rotary", enters: ["queries and keys"], about: "Each query and key is turned by an angle that grows with its place, a pair of numbers fast, the next slower. Their score then depends on i − j alone.", beyond: "The angles go on turning, so a score exists for every distance; but slow pairs reach angles that never came in training, and models fail there unless the angles are stretched." },
  alibi: { title: "ALiBi", enters: ["scores"], about: "A slope times the distance is subtracted from the score. Each head has a slope of its own, ½, ¼, … 1/256: steep heads look near, flat ones far.", beyond: "The line simply goes on down: the further, the less weight. That is why it can be used on longer texts than it was trained on." },
};
const STATIONS = ["embeddings", "queries and keys", "scores", "weights"];

// --- made-up numbers, always the same ---

const normal = normals(77);
const random = (rows, columns, scale, digits = 6) => Array.from({ length: rows }, () => Array.from({ length: columns }, () => Number((scale * normal()).toFixed(digits))));
const near = (width, part) => random(width, width, part / Math.sqrt(width)).map((line, n) => line.map((x, m) => x + (n === m ? 1 : 0))); // near the unit matrix
const VOCABULARY = { the: random(1, SMALL, 1, 2)[0], dog: random(1, SMALL, 1, 2)[0], bit: random(1, SMALL, 1, 2)[0], man: random(1, SMALL, 1, 2)[0] };
const WEIGHTS = { query: random(SMALL, SMALL, 0.8, 2), key: random(SMALL, SMALL, 0.8, 2), value: random(SMALL, SMALL, 0.8, 2) };
const BUCKET = Array.from({ length: BUCKETS }, (_, n) => Number((1.2 - 0.14 * n + 0.3 * Math.cos(1.1 * n)).toFixed(2)));
const FAR = { word: random(1, WIDTH, 1)[0], query: near(WIDTH, 0.7), key: near(WIDTH, 0.7) };
// A table in which neighbors are alike: each row is nine tenths of the one before, and something new.
function tableOf(width) {
  const rows = [random(1, width, 0.7)[0]];
  while (rows.length < TRAINED) rows.push(rows[rows.length - 1].map((x) => 0.9 * x + 0.7 * Math.sqrt(0.19) * normal()));
  return rows;
}
const TABLE = { small: tableOf(SMALL), far: tableOf(WIDTH) }, SINES = { small: A.sinusoidal(WORDS.length, SMALL), far: A.sinusoidal(LONGEST, WIDTH) };

const slopeOf = (state) => A.alibiSlopes(HEADS)[state.get("head") - 1];
const biasOf = (state) => ({ t5: A.t5(BUCKET), alibi: A.alibi(slopeOf(state)) })[state.get("scheme")] ?? A.none();

// The sentence in some order, with the scheme's positions.
function sentence(state, list) {
  const scheme = state.get("scheme"), table = { sinusoidal: SINES.small, learned: TABLE.small }[scheme];
  const x = list.map((which, place) => VOCABULARY[WORDS[which]].map((each, d) => each + (table ? table[place][d] : 0)));
  let query = A.product(x, WEIGHTS.query), key = A.product(x, WEIGHTS.key);
  if (scheme === "rotary") [query, key] = [query, key].map((rows) => A.rotary(rows, { base: state.get("base") }));
  return A.attend({ query, key, value: A.product(x, WEIGHTS.value), bias: biasOf(state) });
}
const small = (state) => { const names = state.get("order").map((which) => WORDS[which]); return { result: sentence(state, state.get("order")), score: "scaled", rows: names, columns: names }; };

// Logits of a query at place `at` with all keys up to it, if all words are the same: what is left is position. Null past a table.
function logitsAt(state, at) {
  const scheme = state.get("scheme"), table = { sinusoidal: SINES.far, learned: TABLE.far }[scheme];
  if (scheme === "learned" && at >= TRAINED) return null;
  const x = (place) => (table ? FAR.word.map((each, d) => each + table[place][d]) : FAR.word);
  let query = A.times(FAR.query, x(at)), key = Array.from({ length: at + 1 }, (_, place) => (table || place === 0 ? A.times(FAR.key, x(place)) : null));
  if (!table) key = key.map(() => key[0]);
  if (scheme === "rotary") { [query] = A.rotary([query], { start: at, base: state.get("base") }); key = A.rotary(key, { base: state.get("base") }); }
  const score = A.scaled(), bias = scheme === "t5" ? A.t5(BUCKET, { bidirectional: false }) : biasOf(state);
  return key.map((k, j) => score(query, k) + bias(at, j));
}
// [distance, number] from near to far.
const byDistance = (list) => list.map((value, j) => [list.length - 1 - j, value]).reverse();

function build(stage, { state }) {
  const top = row(stage);
  choice(top, state, "scheme", { label: "positions", options: Object.entries(SCHEMES).map(([value, { title }]) => ({ value, text: title })) });
  const head = slider(top, state, "head", { label: "ALiBi's head", low: 1, high: HEADS, step: 1, format: (n) => `${n}, slope 1/${2 ** n}` }).element;
  const base = slider(top, state, "base", { label: "base of the angles", low: 100, high: 1e6, log: true, format: (x) => short(x, 0), ticks: [100, { value: 1e4, text: "10 000" }, { value: 1e6, text: "1 000 000" }] }).element;
  const way = make("div", stage, { name: "positions-way", role: "img" });
  const stations = STATIONS.map((name) => [name, make("span", way, { text: name })]);
  const about = make("p", stage, { name: "positions-about" });

  const bar = row(stage, "positions-order");
  make("span", bar, { text: "Drag the words", name: "part-title positions-plain" });
  const words = order(bar, state, "order", { label: "Order of the words", words: WORDS });
  const random = uniforms(5);
  button(bar, "shuffle", () => {
    const list = [...state.get("order")];
    for (let n = list.length - 1; n > 0; n--) { const m = Math.floor(random() * (n + 1)); [list[n], list[m]] = [list[m], list[n]]; }
    state.set({ order: list.join() === state.get("order").join() ? [...list.slice(1), list[0]] : list });
  });
  button(bar, "dog and man", () => state.set({ order: [0, 4, 2, 3, 1] }), { title: "the man bit the dog" });
  const panels = make("div", stage, { name: "panels" }), [left, middle, right] = [0, 1, 2].map(() => make("div", panels));
  make("p", left, { text: "Outputs, in the first order", name: "part-title" });
  const first = heatmap(left, { label: "Outputs of the words in the first order", most: 330, largest: 44 });
  make("p", middle, { text: "Outputs, in your order", name: "part-title" });
  const second = heatmap(middle, { label: "Outputs of the words in your order", most: 330, largest: 44 });
  make("p", right, { text: "How far each word's output moved", name: "part-title" });
  const moved = bars(right, { label: "How far each word's output moved", names: 52, row: 22, high: (items) => Math.max(0.5, ...items.map(({ value }) => value)) });
  const verdict = make("p", right, { name: "part-note", role: "status" });

  const bottom = row(stage, "positions-far");
  slider(bottom, state, "at", { label: "place of the query", low: 1, high: LONGEST - 1, step: 1, ticks: [{ value: TRAINED, text: `trained up to ${TRAINED}` }] });
  const readings = make("div", bottom, { name: "readings" }), near = reading(readings, "weight of the 16 nearest"), far = reading(readings, `weight beyond ${TRAINED}`);
  const lower = make("div", stage, { name: "panels two" }), one = make("div", lower), two = make("div", lower);
  make("p", one, { text: "Score against distance, if all words are the same", name: "part-title" });
  const scores = curves(one, { label: "Score against distance", height: 230, xName: "distance i − j", yName: "" });
  make("p", two, { text: "Weight against distance", name: "part-title" });
  const weights = curves(two, { label: "Weight against distance", height: 230, xName: "distance i − j", yName: "" });
  make("p", stage, { text: `Blue: the query where the slider is. Gray dashes: a query at place ${TRAINED - 1}, the last one in training. Dashed upright: distance ${TRAINED}, which training never had.`, name: "part-note" });
  const beyond = make("p", stage, { name: "sentence", role: "status" });

  return () => {
    const scheme = state.get("scheme"), list = state.get("order"), start = WORDS.map((_, n) => n);
    head.hidden = scheme !== "alibi";
    base.hidden = scheme !== "rotary";
    for (const [name, station] of stations) station.className = SCHEMES[scheme].enters.includes(name) ? "on" : "";
    way.setAttribute("aria-label", SCHEMES[scheme].enters.length ? `The scheme changes the ${SCHEMES[scheme].enters.join(" and ")}` : "Nothing is changed");
    about.textContent = SCHEMES[scheme].about;
    words.update();
    const before = sentence(state, start).output, after = sentence(state, list).output;
    const values = (view, rows, names) => view.update({ values: rows, rows: names, columns: null, signed: true, high: 2 });
    values(first, before, WORDS);
    values(second, after, list.map((which) => WORDS[which]));
    const change = start.map((which) => Math.max(...before[which].map((x, d) => Math.abs(x - after[list.indexOf(which)][d]))));
    moved.update(change.map((value, n) => ({ name: WORDS[n], value: value < 1e-12 ? 0 : value, kind: "output" }))); // below: rounding of a sum in another order
    const most = Math.max(...change), same = list.every((which, place) => which === place);
    verdict.textContent = same ? "The order is the first one. Move a word." : most < 1e-12 ? "Every word has exactly the output it had: only the rows have changed places." : "Words have other outputs than before: the order is seen.";
    // the chart over distances
    const at = state.get("at"), now = logitsAt(state, at), then = logitsAt(state, TRAINED - 1);
    const lines = (make) => [
      ...(scheme === "alibi" ? A.alibiSlopes(HEADS).map((slope) => ({ kind: "other positions-thin", points: byDistance(make(then.map((_, j) => then[then.length - 1] - slope * (then.length - 1 - j)))) })) : []),
      { kind: "other", dashed: true, points: byDistance(make(then)) }, ...(now ? [{ kind: "weight", points: byDistance(make(now)) }] : []),
    ];
    const finite = lines((logits) => logits), all = finite.flatMap(({ points }) => points.map(([, y]) => y)), low = Math.min(...all), high = Math.max(...all), pad = Math.max(0.08 * (high - low), 0.5);
    const bottom = scheme === "alibi" ? Math.max(low, high - 24) : low - pad;
    scores.update({ lines: finite.map((line) => ({ ...line, points: line.points.filter(([, y]) => y >= bottom) })), low: 0, high: LONGEST, bottom, top: high + pad, here: TRAINED });
    const shares = lines((logits) => A.softmax(logits)), tallest = Math.max(...shares.flatMap(({ points }) => points.map(([, y]) => y)));
    weights.update({ lines: shares, low: 0, high: LONGEST, bottom: 0, top: Math.min(tallest * 1.1, 1), here: TRAINED });
    const w = now ? A.softmax(now).reverse() : null;
    near(w ? short(A.sum(w.slice(0, 16)), 3) : "no row");
    far(w ? short(A.sum(w.slice(TRAINED)), 3) : "no row");
    beyond.textContent = `Past the trained length: ${SCHEMES[scheme].beyond}`;
  };
}

export const chapter = {
  number: 7,
  name: "positions",
  title: "Positions",
  text: [
    "Attention compares each query with each key and adds up values: nothing in it knows which word comes first.",
    "So the place of a word has to be put in, and there are three places to do it: the embeddings, the queries and keys, or the scores.",
  ],
  predict: {
    question: "Without positions, how does the output of “dog” in “the dog bit the man” differ from that in “the man bit the dog”?",
    options: ["It differs: the subject is another", "Not at all", "Only its sign changes"],
    answer: 1,
    because: "“dog” meets the same keys with the same values in both, and a sum does not depend on the order. Only the rows of the output change places with the words.",
  },
  notice: [
    "With “none”, shuffle as you like: every word keeps its output, number for number, and the two “the” have the same. With any scheme they differ.",
    "Rotary, T5 and ALiBi look at the distance i − j alone: move the query and the blue line stays on the gray one. Sinusoidal and learned tables give every place a line of its own.",
    "ALiBi's heads differ in slope only (the thin lines): with ½ the 16 nearest keys have nearly all weight, with 1/256 far keys count almost as much as near ones.",
    "Past the trained length: a learned table has no row, T5 is flat, ALiBi goes on falling, and sinusoidal and rotary give numbers that no training has tested.",
  ],
  exercise: { number: 11 },
  experiments: [{ command: "regard lab positions", about: "measures what each scheme learns of order, and how well trained models do on texts longer than those they were trained on." }],
  fields: {
    scheme: word("none", Object.keys(SCHEMES)), order: permutation(WORDS.length), head: whole(3, 1, HEADS), base: number(10000, 100, 1e6, 0), at: whole(200, 1, LONGEST - 1),
  },
  small,
  build,
};
