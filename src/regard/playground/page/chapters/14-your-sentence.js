// Chapter 14: your own sentence, read by real models. `regard play` runs them; in a file there is no model to ask.

import { bars } from "../bars.js";
import { button, choice, row, slider, textField } from "../controls.js";
import { percent, short } from "../draw.js";
import { number, numbers, text, whole } from "../fields.js";
import { heatmap } from "../heatmap.js";
import { ask } from "../live.js";
import { make } from "../shared/dom.js";
import { floats } from "../shared/numbers.js";
import { debounce } from "../shared/state.js";

const LAYERS = 6, HEADS = 12, DEPTH = 30, WIDE = 9, WAIT = 60, LETTERS = 600; // of MiniLM; of SmolLM2; ms after a key

function build(stage, { state, live }) {
  const note = make("p", stage, { name: "sentence", role: "status" });
  const tell = (error) => { note.textContent = error; };
  if (!live) tell("This chapter asks real models, which a file cannot hold: run regard play and open it there.");

  make("h3", stage, { text: "What MiniLM's heads look at" });
  textField(row(stage), state, "sentence", { label: "your sentence", longest: LETTERS });
  choice(row(stage), state, "layer", { label: "layer", options: Array.from({ length: LAYERS }, (_, n) => n) });
  const panels = make("div", stage, { name: "panels two" }), left = make("div", panels), right = make("div", panels);
  make("p", left, { text: "All heads of the layer", name: "part-title" });
  const grid = make("div", left, { name: "sentence-heads", role: "group", "aria-label": "Heads" });
  const thumbs = Array.from({ length: HEADS }, (_, n) => {
    const card = make("button", grid, { name: "sentence-head", "aria-label": `head ${n}` });
    const view = heatmap(make("span", card), { label: `Head ${n}` });
    make("span", card, { text: String(n) });
    card.addEventListener("click", () => state.set({ head: n }));
    return { card, view };
  });
  const title = make("p", right, { name: "part-title" });
  const large = heatmap(right, { label: "Weights of the chosen head", hover: (cell) => point(cell) });
  const told = make("p", right, { name: "part-note" });
  let seen = null; // the answer for `heads`, its weights decoded

  make("h3", stage, { text: "What SmolLM2 says next", name: "spaced" });
  textField(row(stage), state, "start", { label: "the beginning of a text", longest: LETTERS });
  const knobs = row(stage);
  slider(knobs, state, "tau", { label: "temperature", low: 0.05, high: 5, log: true, format: (x) => short(x, 2) });
  slider(knobs, state, "top", { label: "top-k: likeliest tokens that may come", low: 1, high: 1000, step: 1, log: true });
  const lower = make("div", stage, { name: "panels two" }), words = make("div", lower), switches = make("div", lower);
  make("p", words, { text: "Next token; dashed: with all heads on", name: "part-title" });
  const next = bars(words, { label: "Probabilities of the next token", names: 120, format: percent });
  make("p", switches, { text: "Heads: press one to switch it off", name: "part-title" });
  const off = heatmap(switches, { label: "Heads of SmolLM2, by layer; off is hatched", most: 340, press: ({ row: layer, column }) => flip(layer * WIDE + column), hover: () => {} });
  const tools = row(switches, "below");
  button(tools, "all on", () => state.set({ off: [] }));
  button(tools, "ten at random", () => state.set({ off: [...new Set([...state.get("off"), ...Array.from({ length: 10 }, () => Math.floor(Math.random() * DEPTH * WIDE))])].sort((a, b) => a - b) }));
  let predicted = null;

  function flip(head) {
    const list = state.get("off");
    state.set({ off: list.includes(head) ? list.filter((each) => each !== head) : [...list, head].sort((a, b) => a - b) });
  }
  function point(cell) {
    if (!cell || !seen) { told.textContent = ""; return; }
    told.textContent = `${seen.tokens[cell.row]} looks at ${seen.tokens[cell.column]} with weight ${short(seen.weights[state.get("head")][cell.row][cell.column], 3)}`;
  }

  // Each question is sent once, a moment after the last change of what it depends on.
  const sent = { heads: "", next: "" };
  async function send(name, body, take) {
    const key = JSON.stringify(body);
    if (!live || sent[name] === key || !body.text.trim()) return;
    sent[name] = key;
    try {
      const answer = await ask(live, name, body);
      if (answer) { take(answer); tell(""); paint(); }
    } catch (error) {
      tell(error.message);
    }
  }
  const askHeads = debounce(WAIT, () => send("heads", { text: state.get("sentence"), layer: state.get("layer") }, (answer) => {
    const flat = floats(answer.weights, true), n = answer.tokens.length;
    const weights = Array.from({ length: answer.heads }, (_, h) => Array.from({ length: n }, (_, i) => Array.from(flat.subarray((h * n + i) * n, (h * n + i + 1) * n))));
    seen = { ...answer, weights };
  }));
  const askNext = debounce(WAIT, () => send("next", {
    text: state.get("start"), temperature: Math.round(100 * state.get("tau")), top_k: state.get("top"), off: state.get("off").map((head) => [Math.floor(head / WIDE), head % WIDE, 0]),
  }, (answer) => { predicted = answer; }));

  function paint() {
    const head = state.get("head"), list = new Set(state.get("off"));
    thumbs.forEach(({ card, view }, n) => {
      card.setAttribute("aria-pressed", String(n === head));
      if (seen) view.update({ values: seen.weights[n], rows: null, columns: null, high: 1, numbers: false });
    });
    title.textContent = `Layer ${state.get("layer")}, head ${head}`;
    if (seen) large.update({ values: seen.weights[head], rows: seen.tokens, columns: seen.tokens, high: 1 });
    off.update({
      values: Array.from({ length: DEPTH }, () => new Array(WIDE).fill(0.55)), rows: Array.from({ length: DEPTH }, (_, n) => `layer ${n}`), columns: null,
      hidden: (i, j) => list.has(i * WIDE + j), numbers: false,
    });
    if (predicted) next.update(predicted.next.map(({ token, before, after }) => ({ name: token, value: after, ghost: before, title: `${token}: ${short(after, 4)}, with all heads ${short(before, 4)}` })));
  }

  return () => { paint(); askHeads(); askNext(); };
}

export const chapter = {
  number: 14,
  name: "your-sentence",
  title: "Your own sentence",
  text: [
    "Type a sentence and see what the heads of a small encoder, MiniLM, look at in it.",
    "Begin a text and see what a small language model, SmolLM2, expects next, and what changes when its heads are switched off.",
  ],
  predict: {
    question: "SmolLM2 has 270 heads. One of them is switched off. What happens to the token it expects next, as a rule?",
    options: ["nearly nothing", "it becomes another one", "it becomes nonsense"],
    answer: 0,
    because: "Most heads can be missed one at a time: others do the same, or their part is small in this text. Of 54 heads drawn at random, none changed the likeliest token after “The capital of Italy is”. Switch off many and it falls apart.",
  },
  notice: [
    "Some heads look at the word before or after, whatever the text; others find words that belong together.",
    "A head with nothing to do puts its weight on [CLS], [SEP] or a full stop: a weight must go somewhere.",
    "Temperature makes the bars more or less even; top-k cuts the list, and what is cut can never come.",
    "A weight shows where a head reads, not whether it matters: only switching it off shows that.",
  ],
  experiments: [
    { command: "regard see \"The cat sat on the mat\"", about: "draws the heads in a terminal or a file." },
    { command: "regard heads \"The cat sat on the mat\"", about: "lists what each head does." },
  ],
  fields: {
    sentence: text("The animal didn't cross the street because it was too tired.", LETTERS), layer: whole(2, 0, LAYERS - 1), head: whole(0, 0, HEADS - 1),
    start: text("The capital of Italy is", LETTERS), tau: number(1, 0.05, 5, 2), top: whole(50, 1, 1000), off: numbers([], 0, DEPTH * WIDE - 1, DEPTH * WIDE),
  },
  wide: true,
  build,
};
