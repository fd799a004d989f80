// Chapter 12: tricks. Softmax tile by tile without the n × n matrix, and keys and values that are kept while text is written.

import * as A from "../attention.js";
import { bars, columns } from "../bars.js";
import { curves } from "../chart.js";
import { presets, reading, row, slider } from "../controls.js";
import { brief, shade, short, thousands } from "../draw.js";
import { vector, whole } from "../fields.js";
import { heatmap } from "../heatmap.js";
import { matrix } from "../matrix.js";
import { player } from "../player.js";
import { normals } from "../random.js";
import { make } from "../shared/dom.js";

// --- one query over eight keys, tile by tile ---

const KEYS = 8, VALUES = Array.from({ length: KEYS }, (_, j) => [j + 1]), HIGHEST = 8;
const SCORES = [1, 2, 0.5, 3.5, 3, 1, 5, 2];
const NAMES = VALUES.map((_, j) => `key ${j + 1}`);

const count = (state) => Math.ceil(KEYS / state.get("tile"));
const read = (state) => Math.min(state.get("tiles"), count(state));
// The states after the tiles that were read.
const states = (state) => [...A.onlineSoftmax(state.get("scores"), VALUES, state.get("tile"))].slice(0, read(state));
const atOnce = (state) => A.attend({ query: [[1]], key: state.get("scores").map((x) => [x]), value: VALUES, score: A.dot() });
const small = (state) => ({ result: atOnce(state), score: "dot", rows: ["query"], columns: NAMES });

// What the last tile did, in words and numbers.
function told(seen, total) {
  if (!seen.length) return "No tile was read yet: m = −∞, l = 0, o = 0.";
  const { start, stop, largest, rescale, powers, total: l } = seen[seen.length - 1], before = seen[seen.length - 2];
  const keys = stop - start === 1 ? `key ${stop}` : `keys ${start + 1} ${stop - start === 2 ? "and" : "to"} ${stop}`, name = `Tile ${seen.length} (${keys})`;
  const added = powers.map((power) => short(power)).join(" + "), done = seen.length === total ? " That was the last tile: o / l is the output." : "";
  if (!before) return `${name}: its largest score is m = ${short(largest)}, and l = ${added} = ${short(l)}. o is the same sum with each term times its value.${done}`;
  if (rescale === 1) return `${name}: no score above m = ${short(largest)}, so what was kept stays (factor 1) and the tile is added: l = ${short(before.total)} + ${added} = ${short(l)}.${done}`;
  return `${name} has a larger score: m goes from ${short(before.largest)} to ${short(largest)}. So l and o, which were relative to ${short(before.largest)}, are multiplied by e^(${short(before.largest)} − ${short(largest)}) = ${short(rescale)}, and the tile is added: l = ${short(rescale)} · ${short(before.total)} + ${added} = ${short(l)}.${done}`;
}

function online(stage, { state, still }) {
  make("h3", stage, { text: "Softmax without the whole row", name: "tricks-part" });
  make("p", stage, { text: "One query, eight keys; key j has the value j. Only one tile of scores is in memory; of all earlier ones three things are kept: m, the largest score; l, the sum of e^(score − m); o, the sum of e^(score − m) · value. The attention over the keys read so far is o / l.", name: "tricks-about" });
  const top = row(stage), steps = player(top, state, "tiles", { last: () => count(state), still, what: "tile" });
  slider(top, state, "tile", { label: "keys in a tile", low: 1, high: KEYS, step: 1 });
  presets(top, state, [
    { text: "mixed", values: { scores: SCORES } },
    { text: "rising", values: { scores: [0.5, 1, 1.5, 2, 3, 4, 5, 6] } },
    { text: "largest first", values: { scores: [6, 5, 4, 3, 2, 1.5, 1, 0.5] } },
  ], "scores");
  const panels = make("div", stage, { name: "panels two" }), left = make("div", panels), right = make("div", panels, { name: "tricks-moving" });
  make("p", left, { text: "Scores, to drag. Orange: tile in memory; dashed: m", name: "part-title" });
  const scores = columns(left, { label: "Scores of the keys, tile by tile", high: HIGHEST, height: 190, state, field: "scores", step: 0.5, format: (x) => short(x, 1) });
  make("p", right, { text: "Weights if the row ended here; dashed: softmax over all keys", name: "part-title" });
  const weights = columns(right, { label: "Weights of the keys read so far", height: 190 });
  const said = make("p", stage, { name: "tricks-said", role: "status" });
  const readings = make("div", stage, { name: "readings" });
  const show = { m: reading(readings, "m, largest so far"), l: reading(readings, "l, sum so far"), o: reading(readings, "o so far"), result: reading(readings, "o / l"), all: reading(readings, "output over all keys at once"), far: reading(readings, "difference so far") };
  const table = matrix(stage, { name: "tile", caption: "What is kept after every tile" });

  return () => {
    steps.update();
    const seen = states(state), last = seen[seen.length - 1], size = state.get("tile"), all = atOnce(state), list = state.get("scores");
    scores.update(list.map((value, j) => {
      const tile = Math.floor(j / size), kind = tile >= seen.length ? "other" : tile === seen.length - 1 ? "query" : "key";
      return { name: String(j + 1), value, kind, ...(tile < seen.length ? { ghost: seen[tile].largest } : {}) };
    }));
    weights.update(list.map((x, j) => {
      const value = last && j < last.stop ? Math.exp(x - last.largest) / last.total : 0;
      return { name: String(j + 1), value, ghost: all.weights[0][j], text: last && j < last.stop ? short(value, 2) : "" };
    }));
    said.textContent = told(seen, count(state));
    show.m(short(last ? last.largest : -Infinity));
    show.l(short(last ? last.total : 0));
    show.o(short(last ? last.accumulated[0] : 0));
    show.result(last ? short(last.result[0]) : "–");
    show.all(short(all.output[0][0]));
    show.far(last ? short(Math.abs(last.result[0] - all.output[0][0])) : "–");
    const rows = Array.from({ length: count(state) }, (_, n) => seen[n]);
    table.update({ values: rows.map((one) => (one ? [one.largest, one.rescale, one.total, one.accumulated[0], one.result[0]] : [0, 0, 0, 0, 0])), rows: rows.map((_, n) => String(n + 1)), columns: ["m", "factor", "l", "o", "o / l"], row: seen.length ? seen.length - 1 : null, hidden: (i, j) => i >= seen.length || (i === 0 && j === 1), format: (x) => short(x, 3) });
  };
}

// --- memory of one head, in bytes of single precision ---

const WIDTH = 64, BYTES = 4, BLOCK = 64, LONGEST = 131072; // d_k = d_v; BLOCK × BLOCK scores are in memory at a time
const inputs = (n) => BYTES * 4 * n * WIDTH; // q, k, v and the output
const naive = (n) => BYTES * n * n;
const tiled = () => BYTES * (BLOCK * BLOCK + BLOCK * (2 + WIDTH)); // a tile of scores; m, l and o of its queries
const LENGTHS = Array.from({ length: 31 }, (_, k) => Math.round(128 * 2 ** (k / 3)));
const bytes = (x) => (x < 1000 ? `${x} B` : `${brief(x)}B`);

function memory(stage, { state }) {
  make("h3", stage, { text: "What must be in memory", name: "tricks-part" });
  make("p", stage, { text: `One head of width ${WIDTH} in single precision. The naive way writes all n × n scores before softmax; tile by tile there are ${BLOCK} × ${BLOCK} scores at a time, with m, l and o of ${BLOCK} queries.`, name: "tricks-about" });
  slider(row(stage), state, "n", { label: "tokens n", low: 128, high: LONGEST, step: 1, log: true, format: thousands });
  const panels = make("div", stage, { name: "panels two" }), left = make("div", panels), right = make("div", panels);
  make("p", left, { text: "Memory meter", name: "part-title" });
  const meter = bars(left, { label: "Memory of both ways", names: 118, numbers: 76, high: (items) => Math.max(...items.map(({ value }) => value), 1) });
  const ratio = make("p", left, { name: "part-note", role: "status" });
  make("p", right, { text: "Bytes against length: each line of the grid is a hundred times the one below", name: "part-title" });
  const chart = curves(right, { label: "Memory against the number of tokens", height: 220, xName: "tokens n", yFormat: (y) => `${brief(10 ** y)}B`, xFormat: (n) => (n < 1000 ? String(n) : `${Math.round(n / 1000)} k`) });

  return () => {
    const n = state.get("n");
    meter.update([["q, k, v, output", inputs(n), "other"], ["naive adds", naive(n), "query"], ["tiles add", tiled(), "weight"]].map(([name, value, kind]) => ({ name, value, kind, text: bytes(value) })));
    ratio.textContent = `The n × n scores take ${short(naive(n) / inputs(n), 1)} times the memory of q, k, v and the output together; the tile stays at ${bytes(tiled())} for any n.`;
    const line = (name, kind, each) => ({ name, kind, points: LENGTHS.map((m) => [m, Math.log10(each(m))]) });
    chart.update({ lines: [line("naive", "query", naive), line("q, k, v, o", "other", inputs), line("tiles", "weight", tiled)], low: LENGTHS[0], high: LONGEST, bottom: 4, top: 12, logX: true, here: n, room: 70 });
  };
}

// --- the KV cache: keys and values are kept while text is written ---

const WORDS = ["The", "cat", "sat", "on", "the", "mat", "and", "fell", "asleep", "."], FRESH = 0.75, KEPT = 0.2;
const normal = normals(12), tenth = () => Number(normal().toFixed(1)), drawn = (rows) => Array.from({ length: rows }, () => [tenth(), tenth()]);
const EMBEDDINGS = drawn(WORDS.length), W = { q: drawn(2), k: drawn(2), v: drawn(2) };
const project = (weight, rows) => rows.map((x) => A.times(weight, x));

// All keys and values computed anew for the first t tokens.
function anew(t) {
  const x = EMBEDDINGS.slice(0, t);
  return A.attend({ query: project(W.q, x), key: project(W.k, x), value: project(W.v, x), mask: A.causal() });
}
// Token by token: each adds one key and one value, and asks with one query.
function cached(t) {
  const cache = { key: [], value: [] };
  let result = null;
  for (const x of EMBEDDINGS.slice(0, t)) {
    cache.key.push(A.times(W.k, x));
    cache.value.push(A.times(W.v, x));
    result = A.attend({ query: [A.times(W.q, x)], ...cache, mask: A.causal() });
  }
  return result;
}
const pairs = ({ visible }) => visible.flat().filter(Boolean).length;
const STEPS = WORDS.map((_, n) => ({ anew: anew(n + 1), cached: cached(n + 1) }));

function cache(stage, { state, still }) {
  make("h3", stage, { text: "The KV cache, token by token", name: "tricks-part" });
  make("p", stage, { text: "Each row is one step of writing: the newest token asks all tokens so far. Under the causal mask the keys and values of earlier tokens never change, so they can be kept; without a cache the whole text is read again for each token, with all its keys, values and scores.", name: "tricks-about" });
  const steps = player(row(stage), state, "written", { first: 1, last: () => WORDS.length, still, what: "token" });
  const legend = make("div", stage, { name: "tricks-legend" });
  const swatches = [["key and value computed in this step", FRESH], ["read from the cache", KEPT]].map(([text, share]) => {
    const holder = make("span", legend), swatch = make("i", holder, { "aria-hidden": "true" });
    make("span", holder, { text });
    return [swatch, share];
  });
  const panels = make("div", stage, { name: "panels two" }), left = make("div", panels), right = make("div", panels);
  make("p", left, { text: "Without a cache", name: "part-title" });
  const without = heatmap(left, { label: "Keys and values computed without a cache", most: 400 });
  make("p", right, { text: "With the cache", name: "part-title" });
  const having = heatmap(right, { label: "Keys and values computed with the cache", most: 400 });
  const lower = make("div", stage, { name: "panels two tricks-lower" }), table = matrix(make("div", lower), { name: "computed", caption: "Work with and without the cache" }), store = matrix(make("div", lower), { name: "cache", caption: "What the cache holds" });
  const readings = make("div", stage, { name: "readings" });
  const asked = reading(readings, "query of the newest token"), one = reading(readings, "output, all computed anew"), other = reading(readings, "output with the cache"), far = reading(readings, "largest difference");

  return () => {
    steps.update();
    const t = Math.min(state.get("written"), WORDS.length), last = STEPS[t - 1], done = STEPS.slice(0, t);
    for (const [swatch, share] of swatches) swatch.style.background = shade(share).fill;
    const hidden = (i, j) => i >= t || j > i, shown = { rows: WORDS, columns: WORDS, hidden, row: t - 1, numbers: false };
    without.update({ ...shown, values: WORDS.map(() => WORDS.map(() => FRESH)) });
    having.update({ ...shown, values: WORDS.map((_, i) => WORDS.map((_, j) => (i === j ? FRESH : KEPT))) });
    const keys = done.map((each) => each.anew.key.length), all = (list) => A.sum(list);
    table.update({
      columns: ["without", "cache"], row: null, format: thousands,
      rows: ["K and V, this token", "scores, this token", "K and V, in all", "scores, in all", "kept numbers"],
      values: [[t, 1], [pairs(last.anew), pairs(last.cached)], [all(keys), t], [all(done.map((each) => pairs(each.anew))), all(done.map((each) => pairs(each.cached)))], [0, last.cached.key.flat().length + last.cached.value.flat().length]],
    });
    store.update({ columns: ["k₁", "k₂", "v₁", "v₂"], rows: WORDS.slice(0, t), row: t - 1, values: last.cached.key.map((key, j) => [...key, ...last.cached.value[j]]) });
    const text = (vector) => `[${vector.map((x) => short(x)).join(", ")}]`, full = last.anew.output[t - 1], kept = last.cached.output[0];
    asked(text(last.cached.query[0]));
    one(text(full));
    other(text(kept));
    far(short(Math.max(...full.map((x, d) => Math.abs(x - kept[d])))));
  };
}

function build(stage, page) {
  const parts = [online, memory, cache].map((part) => part(stage, page));
  return () => parts.forEach((draw) => draw());
}

export const chapter = {
  number: 12,
  name: "tricks",
  title: "Tricks",
  text: [
    "Flash attention never writes down the n × n matrix: it reads keys and values tile by tile and corrects what it kept when a larger score comes.",
    "A model that writes keeps the keys and values of all tokens so far, and computes only those of the newest one.",
  ],
  predict: {
    question: "After the first tile of keys the largest score is 3. The next tile has a score of 5. What happens to the sum l that was kept?",
    options: ["nothing, the new terms are added", "it is multiplied by e² and the new terms are added", "it is multiplied by e⁻² and the new terms are added", "the first tile is read again"],
    answer: 2,
    because: "l is a sum of e^(score − 3). Relative to the new largest score each term is e^(score − 5) = e^(score − 3) · e⁻²: one factor corrects all of them, and no key is read twice.",
  },
  notice: [
    "Three things are kept of a row, however long it is: the largest score m, the sum l, and o, the sum of values. When a tile has a larger score, l and o are multiplied by e^(old m − new m) and the tile is added. Rising scores rescale at every tile; with the largest first the factor is always 1.",
    "Weights of keys already read shrink as more keys come, always all by the same factor: that is why one factor for l and o is enough.",
    "Neither trick is an approximation: after the last tile o / l is softmax over all keys but for rounding, for any tile size, and the cache gives the same output.",
    "The naive way needs n² numbers: twice as long, four times the memory. Tile by tile only q, k, v and the output grow, with n. The number of scores computed is n² either way; what is saved is memory and moving it.",
    "Without a cache, writing token t computes t keys and values and the scores of all t queries; with it, one key, one value and the scores of one query. Keys and values for 1 000 tokens: 500 500 against 1 000. Its price is memory: a key and a value for every token, layer and head.",
    "Queries are not kept: an old query is never asked again.",
  ],
  exercise: { number: 16 },
  experiments: [
    { command: "regard lab tricks", about: "counts memory and operations of flash attention, chunks and the cache, and compares their results." },
    { command: "regard exercise 15", about: "asks how large the cache of a real model is." },
  ],
  fields: { scores: vector(SCORES, HIGHEST), tile: whole(2, 1, KEYS), tiles: whole(1, 0, KEYS), n: whole(8192, 128, LONGEST), written: whole(4, 1, WORDS.length) },
  small,
  build,
};
