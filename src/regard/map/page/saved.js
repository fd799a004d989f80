// The page of a saved view: one file that answers its own requests, from the levels and weights that are inside.

import { TILE, decodeTiles, valueOf } from "./codec.js";
import { sideOf } from "./geometry.js";
import { start } from "./start.js";
import { Failure } from "./transport.js";

const TOP = 20, FOUND = 1000;

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

// What the server answers, from the data of the file: {info, levels, weights, visible, tokens}.
export class Saved {
  constructor(data) {
    this.data = data;
    this.layer = data.info.layers[0];
    this.levels = new Map();
    this.tokens = {};
  }

  // Each part is unpacked when it is first needed.
  level(z) {
    if (!this.levels.has(z)) this.levels.set(z, unpacked(this.data.levels[z]).then((buffer) => new Map(decodeTiles(buffer).map((tile) => [`${tile.y}.${tile.x}`, tile]))));
    return this.levels.get(z);
  }

  weights() {
    return (this.found ??= unpacked(this.data.weights).then((buffer) => new Float32Array(buffer)));
  }

  visible() {
    return (this.seen ??= unpacked(this.data.visible).then((buffer) => new Uint32Array(buffer)));
  }

  // {labels, texts} of an axis; both axes may have the same.
  async words(axis) {
    const name = this.data.tokens[axis] === undefined ? "query" : axis;
    return (this.tokens[name] ??= unpacked(this.data.tokens[name]).then((buffer) => JSON.parse(new TextDecoder().decode(buffer))));
  }

  // The weights of a row or a column, −1 where hidden.
  async line(axis, at) {
    const { queries, keys } = this.layer, all = await this.weights();
    if (axis === "row") return all.subarray(at * keys, (at + 1) * keys);
    return Float32Array.from({ length: queries }, (_, q) => all[q * keys + at]);
  }

  // Multiples of uniform of the cells along a row or column on the finest level, where there are no single weights.
  async coarse(axis, at) {
    const z = this.layer.finest, side = sideOf(this.layer, z), tiles = await this.level(z), coding = { hi: this.layer.hi, step: this.data.info.step };
    const own = Math.floor(at / side), length = Math.ceil((axis === "row" ? this.layer.keys : this.layer.queries) / side);
    const read = (name, n) => {
      const [r, c] = axis === "row" ? [own, n] : [n, own], tile = tiles.get(`${Math.floor(r / TILE)}.${Math.floor(c / TILE)}`);
      const value = !tile || tile.empty ? null : valueOf(tile[name][(r % TILE) * TILE + (c % TILE)], coding);
      return value === null ? null : 2 ** value;
    };
    return { side, ...Object.fromEntries(["max", "mean"].map((name) => [name, Array.from({ length }, (_, n) => read(name, n))])) };
  }

  async profile(axis, { q, k, from, to, bins }) {
    const at = axis === "row" ? q : k;
    if (!this.data.weights) {
      const { side, max, mean } = await this.coarse(axis, at), size = (to - from) / bins;
      const pick = (values) => Array.from({ length: bins }, (_, n) => values[Math.floor((from + (n + 0.5) * size) / side)] ?? null);
      return { max: pick(max), mean: pick(mean), top: [], side };
    }
    const weights = await this.line(axis, at), counts = await this.visible(), other = axis === "row" ? "k" : "q";
    const words = this.layer[axis === "row" ? "key_tokens" : "query_tokens"] ? await this.words(axis === "row" ? "key" : "query") : null;
    const times = (n) => weights[n] * counts[axis === "row" ? q : n], places = [...weights.keys()].filter((n) => weights[n] >= 0);
    const max = Array(bins).fill(null), sums = Array(bins).fill(0), seen = Array(bins).fill(0);
    for (const n of places) {
      if (n < from || n >= to) continue;
      const bin = Math.floor(((n - from + 1) * bins - 1) / (to - from));
      max[bin] = Math.max(max[bin] ?? 0, times(n));
      sums[bin] += times(n);
      seen[bin]++;
    }
    const sum = places.reduce((total, n) => total + weights[n], 0), share = (n) => (sum > 0 ? weights[n] / sum : 0);
    const entropy = -places.reduce((total, n) => total + (share(n) > 0 ? share(n) * Math.log(share(n)) : 0), 0);
    const top = places.sort((a, b) => weights[b] - weights[a]).slice(0, TOP);
    return {
      max, mean: sums.map((total, bin) => (seen[bin] ? total / seen[bin] : null)), visible: places.length, entropy, sum,
      top: top.map((n) => ({ [other]: n, weight: weights[n], token: words?.labels[n] ?? null })),
    };
  }

  async cell({ q, k }) {
    if (!this.data.weights) throw new Failure(`single weights are not in this file: its finest squares are ${sideOf(this.layer, this.layer.finest)} × ${sideOf(this.layer, this.layer.finest)} weights`, 404);
    const weights = await this.line("row", q), own = weights[k];
    let rank = 1, visible = 0;
    for (const each of weights) { if (each >= 0) visible++; if (each > own) rank++; }
    return { weight: Math.max(own, 0), rank: own < 0 ? null : rank, visible, hidden: own < 0 };
  }

  // As words.py finds them: in upper or lower case and across tokens; if there is none, tokens that hold the text.
  async find({ axis, text, limit = FOUND }) {
    const { labels, texts } = await this.words(axis), folded = texts.map((each) => each.toLowerCase()), starts = [];
    let length = 0;
    for (const each of folded) { starts.push(length); length += each.length; }
    const wanted = text.replace(/↵/g, "\n").replace(/·/g, " ").replace(/⇥/g, "\t").toLowerCase();
    const pattern = [...wanted].map((sign) => (/[ \t\n\r\u00a0]/.test(sign) ? "[ \\t\\n\\r\\u00a0]" : sign.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"))).join("");
    const tokenAt = (place) => {
      let low = 0, high = starts.length - 1;
      while (low < high) { const middle = Math.ceil((low + high) / 2); if (starts[middle] <= place) low = middle; else high = middle - 1; }
      return low;
    };
    let found = [...folded.join("").matchAll(new RegExp(pattern, "gu"))].map(({ 0: match, index }) => {
      const first = tokenAt(index);
      return [first, tokenAt(index + match.length - 1) - first + 1];
    });
    if (!found.length) found = labels.flatMap((label, n) => (label.toLowerCase().includes(text.toLowerCase()) ? [[n, 1]] : []));
    return { positions: found.slice(0, limit).map(([first]) => first), counts: found.slice(0, limit).map(([, many]) => many), total: found.length };
  }

  async answer(name, body) {
    const { data } = this;
    if (name === "info") return data.info;
    if (name === "progress") return { state: "exact", done: 1, total: 1 };
    if (name === "cell") return this.cell(body);
    if (name === "row" || name === "column") return this.profile(name, body);
    if (name === "find") return this.find(body);
    if (name === "strongest") return { cells: data.strongest, exact: true };
    if (name === "tokens") {
      const { labels, texts } = await this.words(body.axis);
      return { tokens: labels.slice(body.from, body.to), texts: texts.slice(body.from, body.to) };
    }
    throw new Failure(`${name} is not in a saved view`, 404);
  }

  async tiles(places) {
    return Promise.all(places.map(async ([z, y, x]) => ({ ...((await this.level(z)).get(`${y}.${x}`) ?? { empty: true, estimate: false }), z, y, x })));
  }

  async call(name, body, signal) {
    const answer = name === "tiles" ? { decoded: await this.tiles(body.tiles) } : await this.answer(name, body);
    signal?.throwIfAborted();
    return answer;
  }

  close() {}
}

const route = {
  ear: document,
  read: () => location.hash,
  replace: (hash) => history.replaceState(null, "", hash),
  push: (hash) => history.pushState(null, "", hash),
  reload() {},
  title: (text) => { document.title = text; },
  listen(call) {
    window.addEventListener("popstate", call);
    return () => window.removeEventListener("popstate", call);
  },
};

const root = document.getElementById("map");
if (root) start(root, new Saved(JSON.parse(document.getElementById("data").textContent)), route).then(({ map }) => { window.regardMap = map; });
