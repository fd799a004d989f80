// Attention, to be read. Vectors are arrays of numbers, matrices are arrays of rows; everything is double precision.
//
//   logits  = score(q, k) + bias(i, j)        a pair (i, j) that the mask hides takes no part
//   weights = normalizer(logits / τ)          row by row: one row for each query
//   output  = dropout(weights) · v
//
// A score is a function of a query and a key; a mask and a bias are functions of two positions: i of the query, j of
// the key. `regard.attend(..., engine="reference")` computes the same, and a test compares the two.

// --- vectors and matrices ---

export const sum = (numbers) => numbers.reduce((total, x) => total + x, 0);
export function dotProduct(a, b) {
  let total = 0;
  for (let n = 0; n < a.length; n++) total += a[n] * b[n];
  return total;
}
export const norm = (a) => Math.sqrt(dotProduct(a, a));
export const transpose = (m) => (m.length ? m[0].map((_, column) => m.map((row) => row[column])) : []);
export const times = (matrix, vector) => matrix.map((row) => dotProduct(row, vector));
export function product(a, b) {
  const columns = transpose(b);
  return a.map((row) => columns.map((column) => dotProduct(row, column)));
}

// --- scores: how well a query and a key match ---

export const dot = () => (q, k) => dotProduct(q, k);

export const scaled = (scale = null) => (q, k) => dotProduct(q, k) * (scale === null ? 1 / Math.sqrt(q.length) : scale);

// q · W · k
export const general = (weight) => (q, k) => dotProduct(q, times(weight, k));

// The cosine of the angle between them; a zero vector has no direction and scores 0.
export const cosine = (scale = 1) => (q, k) => {
  const lengths = norm(q) * norm(k);
  return lengths === 0 ? 0 : (scale * dotProduct(q, k)) / lengths;
};

// Bahdanau's: v · tanh(W₁ q + W₂ k)
export const additive = (wQuery, wKey, v) => concat(wQuery, wKey, null, v, "tanh");

// A hidden layer over [q; k], whose matrix is cut in two: v · φ(W_q q + W_k k + b)
export const concat = (wQuery, wKey, b, v, activation = "tanh") => (q, k) => {
  const phi = ACTIVATIONS[activation], fromQuery = times(wQuery, q), fromKey = times(wKey, k);
  return sum(v.map((each, n) => each * phi(fromQuery[n] + fromKey[n] + (b ? b[n] : 0))));
};

export const ACTIVATIONS = {
  tanh: Math.tanh,
  relu: (x) => Math.max(x, 0),
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  gelu: (x) => 0.5 * x * erfc(-x / Math.SQRT2),
};

// 1 − erf(x): its power series near 0, a continued fraction far out.
export function erfc(x) {
  if (x < 0) return 2 - erfc(-x);
  if (x > 3) {
    let fraction = 0;
    for (let n = 60; n > 0; n--) fraction = n / 2 / (x + fraction);
    return Math.exp(-x * x) / Math.sqrt(Math.PI) / (x + fraction);
  }
  let term = x, total = x;
  for (let n = 1; n < 100; n++) {
    term *= (-x * x) / n;
    total += term / (2 * n + 1);
  }
  return 1 - (2 / Math.sqrt(Math.PI)) * total;
}

// --- masks: whether query i may see key j ---

export const full = () => () => true;
export const causal = () => (i, j) => j <= i;
// `null` leaves a side open.
export const windowed = (before, after = 0) => (i, j) => (before === null || j >= i - before) && (after === null || j <= i + after);
// `width` keys centered on the query, `step` apart.
export const dilated = (width, step) => (i, j) => Math.abs(i - j) % step === 0 && Math.abs(i - j) / step <= (width - 1) / 2;
// These positions see all and are seen by all.
export const globals = (positions) => (i, j) => positions.includes(i) || positions.includes(j);
export const prefix = (length) => (i, j) => j < length;
// Packed texts that must not see each other: `ids` says which text a position belongs to.
export const documents = (ids) => (i, j) => ids[i] === ids[j];
export const table = (rows) => (i, j) => Boolean(rows[i][j]);
export const both = (...masks) => (i, j) => masks.every((mask) => mask(i, j));
export const either = (...masks) => (i, j) => masks.some((mask) => mask(i, j));
export const not = (mask) => (i, j) => !mask(i, j);

// --- biases: numbers added to the scores ---

export const none = () => () => 0;
export const alibi = (slope) => (i, j) => -slope * Math.abs(i - j);
// Slopes of ALiBi's heads: 2^(−8/n), 2^(−16/n), …; between the powers of two, the authors interleave.
export function alibiSlopes(heads) {
  const power = 2 ** Math.floor(Math.log2(heads));
  return Array.from({ length: heads }, (_, n) => (n < power ? 2 ** ((-8 * (n + 1)) / power) : 2 ** ((-4 * (2 * (n - power) + 1)) / power)));
}
// One number for each offset from −reach to reach; beyond, the last one.
export const byDistance = (numbers) => (i, j) => {
  const reach = (numbers.length - 1) / 2;
  return numbers[Math.min(Math.max(i - j, -reach), reach) + reach];
};
// T5's: near offsets have buckets of their own, far ones share buckets in logarithmic steps.
export const t5 = (numbers, { bidirectional = true, maxDistance = 128 } = {}) => (i, j) =>
  numbers[t5Bucket(i - j, numbers.length, { bidirectional, maxDistance })];
export function t5Bucket(offset, buckets, { bidirectional = true, maxDistance = 128 } = {}) {
  const half = bidirectional ? buckets / 2 : buckets, first = bidirectional && offset < 0 ? half : 0;
  const distance = bidirectional ? Math.abs(offset) : Math.max(offset, 0), exact = Math.floor(half / 2);
  if (distance < exact) return first + distance;
  const f = Math.fround; // T5 computes this in single precision
  const far = f(f(f(Math.log(f(Math.min(distance, maxDistance) / exact))) / f(Math.log(maxDistance / exact))) * (half - exact));
  return first + Math.min(exact + Math.floor(far), half - 1);
}
export const added = (...biases) => (i, j) => sum(biases.map((bias) => bias(i, j)));

// --- positions that change the inputs ---

const frequencies = (width, base) => Array.from({ length: Math.ceil(width / 2) }, (_, n) => base ** ((-2 * n) / width));

// Row p has sin and cos of p · base^(−2i/width) in columns 2i and 2i + 1; it is added to the embeddings.
export function sinusoidal(length, width, { start = 0, base = 10000 } = {}) {
  const turns = frequencies(width, base);
  return Array.from({ length }, (_, row) => Array.from({ length: width }, (_, column) => {
    const angle = (start + row) * turns[Math.floor(column / 2)];
    return column % 2 ? Math.cos(angle) : Math.sin(angle);
  }));
}

// Turn each pair of dimensions of row p by the angle p · base^(−2i/width). Pairs are (i, i + width/2), or neighbors.
export function rotary(rows, { start = 0, base = 10000, pairing = "half" } = {}) {
  const width = rows.length ? rows[0].length : 0, turns = frequencies(width, base);
  return rows.map((row, p) => {
    const turned = [...row];
    turns.forEach((turn, n) => {
      const [a, b] = pairing === "half" ? [n, n + width / 2] : [2 * n, 2 * n + 1];
      const cos = Math.cos((start + p) * turn), sin = Math.sin((start + p) * turn);
      turned[a] = row[a] * cos - row[b] * sin;
      turned[b] = row[b] * cos + row[a] * sin;
    });
    return turned;
  });
}

// --- normalizers: a row of logits becomes a row of weights; a hidden pair has the logit −Infinity and gets 0 ---

// e^x divided by the sum of the row. `sink` is a logit that takes its share and gives nothing.
export function softmax(logits, sink = -Infinity) {
  const largest = Math.max(...logits, sink), shift = largest === -Infinity ? 0 : largest; // so that e^x cannot overflow
  const powers = logits.map((x) => Math.exp(x - shift)), total = sum(powers) + Math.exp(sink - shift);
  return powers.map((power) => (total === 0 ? 0 : power / total));
}
export function logSumExp(logits, sink = -Infinity) {
  const largest = Math.max(...logits, sink);
  if (largest === -Infinity) return -Infinity;
  return largest + Math.log(sum(logits.map((x) => Math.exp(x - largest))) + Math.exp(sink - largest));
}

// The point nearest to the logits among all rows of weights; weak keys get exactly 0.
export function sparsemax(logits) {
  const largest = Math.max(...logits);
  if (largest === -Infinity) return logits.map(() => 0);
  const ordered = logits.filter((x) => x > -Infinity).map((x) => x - largest).sort((a, b) => b - a);
  let total = 0, threshold = 0;
  ordered.forEach((x, n) => {
    total += x;
    if (1 + (n + 1) * x > total) threshold = (total - 1) / (n + 1);
  });
  return logits.map((x) => Math.max(x - largest - threshold, 0));
}

// All weight to the largest, the first of equals.
export function hard(logits) {
  const largest = Math.max(...logits), at = logits.indexOf(largest);
  return logits.map((_, n) => (n === at && largest > -Infinity ? 1 : 0));
}

// Softmax that sees one tile of keys at a time and keeps three things of a row: its largest logit, the sum of
// e^(x − largest), and the output so far. A larger logit rescales what is kept. Gives the state after every tile.
export function* onlineSoftmax(logits, values, tile) {
  let largest = -Infinity, total = 0, output = values.length ? values[0].map(() => 0) : [];
  for (let start = 0; start < logits.length; start += tile) {
    const part = logits.slice(start, start + tile), before = largest;
    largest = Math.max(largest, ...part);
    const shift = largest === -Infinity ? 0 : largest, rescale = before === -Infinity ? 0 : Math.exp(before - shift);
    const powers = part.map((x) => Math.exp(x - shift));
    total = total * rescale + sum(powers);
    output = output.map((x, d) => x * rescale + sum(powers.map((power, n) => power * values[start + n][d])));
    const result = output.map((x) => (total === 0 ? 0 : x / total));
    yield { start, stop: start + part.length, largest, rescale, powers, total, accumulated: output, result, lse: largest + Math.log(total) };
  }
}

// --- dropout: every pair has a random number of its own, so the pattern can be computed again anywhere ---

const MASK64 = (1n << 64n) - 1n;
function mix64(x) {
  x = (x + 0x9e3779b97f4a7c15n) & MASK64;
  x = ((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK64;
  x = ((x ^ (x >> 27n)) * 0x94d049bb133111ebn) & MASK64;
  return x ^ (x >> 31n);
}
// What the pairs of row i share.
export const dropoutRow = (seed, i, head = 0, batch = 0) =>
  [batch, head, i].reduce((key, n) => mix64((key + BigInt(n)) & MASK64), mix64(BigInt(seed) & MASK64));
// The 32 random bits of pair (i, j).
export function dropoutNumber(row, j) {
  let x = (Number(row & 0xffffffffn) + j) >>> 0;
  x = Math.imul(x ^ (x >>> 17), 0xed5ad4bb);
  x = Math.imul(x ^ (x >>> 11) ^ Number(row >> 32n), 0xac4c1b51);
  x = Math.imul(x ^ (x >>> 15), 0x31848bab);
  return (x ^ (x >>> 14)) >>> 0;
}
// Which weights stay: those whose number is at least p · 2³².
export function dropoutKept({ p, seed, head = 0, batch = 0 }, i, keys) {
  const row = dropoutRow(seed, i, head, batch), limit = Math.floor(p * 2 ** 32);
  return keys.map((j) => dropoutNumber(row, j) >= limit);
}

// --- attention ---

export function attend({ query, key, value = null, score = scaled(), mask = full(), bias = none(), temperature = 1, normalizer = softmax, dropout = null, queryStart = null }) {
  const first = queryStart === null ? key.length - query.length : queryStart; // the last query stands at the last key
  const scores = query.map((q) => key.map((k) => score(q, k)));
  const biases = query.map((_, row) => key.map((_, j) => bias(first + row, j)));
  const visible = query.map((_, row) => key.map((_, j) => mask(first + row, j) && biases[row][j] !== -Infinity));
  const logits = scores.map((row, i) => row.map((s, j) => (visible[i][j] ? s + biases[i][j] : -Infinity)));
  const weights = logits.map((row) => normalizer(row.map((x) => x / temperature)));
  const keys = key.map((_, j) => j);
  const kept = dropout && dropout.p > 0 ? weights.map((_, row) => dropoutKept(dropout, first + row, keys)) : null;
  const dropped = kept ? weights.map((row, i) => row.map((w, j) => (kept[i][j] ? w / (1 - dropout.p) : 0))) : weights;
  const output = value === null ? null : product(dropped, value);
  return { query, key, value, scores, biases, visible, logits, temperature, weights, kept, dropped, output, lse: logits.map((row) => logSumExp(row.map((x) => x / temperature))) };
}

// --- numbers about a row of weights ---

// How spread out: 0 for all weight on one key, ln n for n equal weights.
export const entropy = (weights) => -sum(weights.map((w) => (w > 0 ? w * Math.log(w) : 0)));
// e^entropy: as many keys as are in use.
export const keysInUse = (weights) => Math.exp(entropy(weights));
// How weight i changes with logit j, ∂wᵢ/∂xⱼ = wᵢ (1[i = j] − wⱼ)/τ; what learning gets back through softmax.
export const jacobian = (weights, temperature = 1) => weights.map((wi, i) => weights.map((wj, j) => (wi * ((i === j ? 1 : 0) - wj)) / temperature));
