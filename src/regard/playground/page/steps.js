// The step-through panel: every number of a small attention in the order in which it is computed, as `regard explain` has it.
//
// A chapter gives `small(state)`: { result: attend(…), score: "scaled", rows, columns, widths?, normalizer?, dropout? };
// `rows` and `columns` are the names of queries and keys. The state holds `step` (0: closed) and `row`, the query that is
// worked out, so that the chapter's picture can mark the same.

import { short } from "./draw.js";
import { matrix } from "./matrix.js";
import { make } from "./shared/dom.js";

const signed = (x) => (x < 0 ? `(${short(x)})` : short(x));
const products = (a, b) => a.map((x, n) => `${signed(x)}·${signed(b[n])}`).join(" + ");

const NAMES = {
  dot: ["Scores: dot products", "S = Q·Kᵀ", "Each query is multiplied with each key, number by number, and the products are added."],
  scaled: ["Scores: dot products, scaled", "S = Q·Kᵀ/√d", "Each query is multiplied with each key, and the sum is divided by √d, d the width of a query."],
  general: ["Scores: general", "S = Q·W·Kᵀ", "The key goes through the matrix W before it is multiplied with the query."],
  cosine: ["Scores: cosines", "s = q·k/(|q|·|k|)", "The dot product is divided by both lengths: only the angle counts."],
  additive: ["Scores: additive", "s = v·tanh(W₁q + W₂k)", "Query and key are added after a matrix each; tanh bends the sum, and v makes a number of it."],
  concat: ["Scores: a small network", "s = v·φ(W[q; k] + b)", "Query and key side by side go through a hidden layer."],
};

// The steps of an attention, as data; `row` is the query that is worked out.
export function stepsOf({ result, score = "scaled", rows, columns, normalizer = "softmax", dropout = null, divide = null }, row) {
  const { query, key, value, scores, biases, visible, logits, temperature, weights, dropped, kept, output } = result;
  const steps = [], pairs = (line) => columns.map((column, j) => (visible[row][j] ? [`${rows[row]} → ${column}`, line(j)] : [`${rows[row]} → ${column}`, "hidden"]));
  const hidden = (i, j) => !visible[i][j], anyHidden = visible.some((line) => line.includes(false));
  steps.push({ name: "query", title: "Queries", formula: "Q", about: "What each query looks for.", tables: [{ name: "Q", values: query, rows, kind: "query", row }], lines: [] });
  steps.push({ name: "key", title: "Keys", formula: "K", about: "What each key offers to be found by.", tables: [{ name: "K", values: key, rows: columns, kind: "key" }], lines: [] });
  const [title, formula, about] = NAMES[score], d = query[0].length;
  const term = {
    dot: (j) => `${products(query[row], key[j])} = ${short(scores[row][j])}`,
    scaled: (j) => `(${products(query[row], key[j])})/√${d} = ${short(scores[row][j] * Math.sqrt(d))}/${short(Math.sqrt(d))} = ${short(scores[row][j])}`,
  }[divide ? "dot" : score] ?? ((j) => short(scores[row][j]));
  steps.push({ name: "score", title: divide ? divide.title : title, formula: divide ? divide.formula : formula, about: divide ? divide.about : about, tables: [{ name: "S", values: scores, rows, columns, row }], lines: divide ? pairs(divide.line) : pairs(term) });
  if (biases.some((line) => line.some((x) => x !== 0))) {
    steps.push({ name: "bias", title: "Biases", formula: "S + B", about: "A number for each pair of positions is added to its score.", tables: [{ name: "B", values: biases, rows, columns, row, hidden }], lines: pairs((j) => `${short(scores[row][j])} + ${signed(biases[row][j])} = ${short(logits[row][j])}`) });
  }
  if (anyHidden) steps.push({ name: "mask", title: "Mask", formula: "hidden pairs take no part", about: "A hidden pair has no logit, so its weight is exactly 0.", tables: [{ name: "S", values: logits, rows, columns, row, hidden }], lines: [] });
  const x = logits.map((line) => line.map((each) => each / temperature));
  if (temperature !== 1) steps.push({ name: "temperature", title: "Temperature", formula: "S/τ", about: `Every logit is divided by τ = ${short(temperature)}.`, tables: [{ name: "S/τ", values: x, rows, columns, row, hidden }], lines: pairs((j) => `${short(logits[row][j])}/${short(temperature)} = ${short(x[row][j])}`) });
  if (normalizer === "softmax") {
    const powers = x.map((line) => line.map((each) => Math.exp(each))), sums = powers.map((line) => line.reduce((a, b) => a + b, 0));
    const seen = columns.map((_, j) => j).filter((j) => visible[row][j]);
    steps.push({ name: "power", title: "Exponentials", formula: "e^S", about: "Every logit becomes a positive number; a row's sum is what its weights are divided by.", tables: [{ name: "e^S", values: powers, rows, columns, row, hidden }, { name: "sum", values: sums.map((each) => [each]), rows, row }], lines: [["sum", `${seen.map((j) => short(powers[row][j])).join(" + ")} = ${short(sums[row])}`]] });
    steps.push({ name: "weight", title: "Weights: softmax", formula: "A = e^S/sum", about: "Each power is divided by its row's sum: the weights of a row are positive and add up to 1.", tables: [{ name: "A", values: weights, rows, columns, row, hidden, kind: "weight" }], lines: pairs((j) => `${short(powers[row][j])}/${short(sums[row])} = ${short(weights[row][j])}`) });
  } else {
    const words = { sparsemax: ["Weights: sparsemax", "The nearest weights to the logits; weak keys get exactly 0."], hard: ["Weights: hard", "All weight to the largest logit."] }[normalizer];
    steps.push({ name: "weight", title: words[0], formula: "A", about: words[1], tables: [{ name: "A", values: weights, rows, columns, row, hidden, kind: "weight" }], lines: [] });
  }
  if (dropout) steps.push({ name: "dropout", title: "Dropout", formula: `A · ${short(1 / (1 - dropout.p))} or 0`, about: `Each weight is dropped with probability p = ${short(dropout.p)}; the others are multiplied by 1/(1 − p).`, tables: [{ name: "A′", values: dropped, rows, columns, row, hidden: (i, j) => Boolean(kept) && !kept[i][j] }], lines: [] });
  if (value) {
    const terms = (n) => columns.map((_, j) => `${short(dropped[row][j])}·${signed(value[j][n])}`).join(" + ");
    steps.push({ name: "output", title: "Output", formula: "O = A·V", about: "The output of a query is the sum of the values, each times its weight.", tables: [{ name: "V", values: value, rows: columns, kind: "value" }, { name: "O", values: output, rows, row, kind: "output" }], lines: output[row].map((each, n) => [`${rows[row]}, column ${n + 1} of ${output[row].length}`, `${terms(n)} = ${short(each)}`]) });
  }
  return steps;
}

export function stepper(parent, state, small) {
  const section = make("section", parent, { name: "steps", "aria-label": "Step through" });
  const open = make("button", section, { name: "plain open", text: "Step through every number" });
  const panel = make("div", section, { name: "panel" });
  const bar = make("div", panel, { name: "steps-bar" }), back = make("button", bar, { name: "plain", text: "← back" });
  const place = make("span", bar, { name: "place" }), next = make("button", bar, { name: "plain", text: "next →" });
  const rows = make("select", make("label", bar, { text: "query " })), close = make("button", bar, { name: "plain", text: "close" });
  const body = make("div", panel, { name: "step", "aria-live": "polite" });
  let count = 1;
  const go = (step) => state.set({ step: Math.min(Math.max(step, 0), count) });
  open.addEventListener("click", () => { go(1); next.focus(); });
  back.addEventListener("click", () => go(state.get("step") - 1));
  next.addEventListener("click", () => go(state.get("step") + 1));
  close.addEventListener("click", () => { go(0); open.focus(); });
  rows.addEventListener("change", () => state.set({ row: Number(rows.value) }));

  function update() {
    const shown = state.get("step") > 0;
    open.hidden = shown;
    panel.hidden = !shown;
    if (!shown) return;
    const given = small(state), row = Math.min(state.get("row"), given.rows.length - 1), list = stepsOf(given, row);
    count = list.length;
    const step = Math.min(state.get("step"), count), { title, formula, about, tables, lines, name } = list[step - 1];
    panel.dataset.step = name;
    if (rows.childElementCount !== given.rows.length || [...rows.options].some((option, n) => option.textContent !== given.rows[n])) {
      rows.replaceChildren(...given.rows.map((text, n) => make("option", null, { text, value: n })));
    }
    rows.value = String(row);
    rows.parentElement.hidden = given.rows.length < 2;
    back.disabled = step === 1;
    next.disabled = step === count;
    place.textContent = `step ${step} of ${count}`;
    body.replaceChildren();
    const head = make("h3", body, { text: title });
    make("code", head, { text: formula });
    make("p", body, { text: about });
    const side = make("div", body, { name: "tables" });
    for (const { name: label, ...each } of tables) matrix(side, { name: label }).update(each);
    const worked = make("dl", body, { name: "worked" });
    for (const [term, text] of lines) { make("dt", worked, { text: term }); make("dd", worked, { text }); }
  }
  return { update };
}

// The name of the step that is shown, for a picture that marks the same: "score", "weight", …; null when closed.
export function stepName(state, small) {
  if (!state.get("step")) return null;
  const given = small(state), list = stepsOf(given, Math.min(state.get("row"), given.rows.length - 1));
  return list[Math.min(state.get("step"), list.length) - 1].name;
}
