// Chapter 11: the block. Attention, feed-forward, add and norm; which positions change when one does.

import * as A from "../attention.js";
import { bars, columns } from "../bars.js";
import { curves } from "../chart.js";
import { choice, presets, reading, row, slider, toggle } from "../controls.js";
import { brief, decimals, each, figure, set, shade, short, thousands } from "../draw.js";
import { flag, vector, whole, word } from "../fields.js";
import { heatmap } from "../heatmap.js";
import { normals } from "../random.js";
import { make, makeSvg } from "../shared/dom.js";

const WORDS = ["the", "cat", "sat", "down", "now"], WIDTH = 4, HIDDEN = 16, DEPTH = 8, EPS = 1e-5, WIDTHS = [768, 4096];
const DIMENSIONS = Array.from({ length: WIDTH }, (_, n) => `x${"₁₂₃₄"[n]}`);

// Inputs and weights, always the same; a matrix is (output, input), as in torch. Each layer has weights of its own.
const normal = normals(5), drawn = (rows, width, scale) => Array.from({ length: rows }, () => Array.from({ length: width }, () => scale * normal()));
const INPUT = drawn(WORDS.length, WIDTH, 1).map((line) => line.map((x) => Number(x.toFixed(1))));
const LAYERS = Array.from({ length: DEPTH }, () => ({
  q: drawn(WIDTH, WIDTH, 0.7), k: drawn(WIDTH, WIDTH, 0.7), v: drawn(WIDTH, WIDTH, 0.5), o: drawn(WIDTH, WIDTH, 0.5), up: drawn(HIDDEN, WIDTH, 0.32), down: drawn(WIDTH, HIDDEN, 0.32),
}));

const project = (rows, weight) => rows.map((line) => A.times(weight, line));
const plus = (a, b) => a.map((line, i) => line.map((x, d) => x + b[i][d]));
const mean = (line) => A.sum(line) / line.length;
const spread = (line) => Math.sqrt(mean(line.map((x) => (x - mean(line)) ** 2)));
// Mean 0 and standard deviation 1 in each row; a layer has weights for this too, which are 1 and 0 here.
const normed = (rows) => rows.map((line) => { const by = Math.sqrt(spread(line) ** 2 + EPS), middle = mean(line); return line.map((x) => (x - middle) / by); });
const looked = (x, weights, causal) => A.attend({ query: project(x, weights.q), key: project(x, weights.k), value: project(x, weights.v), mask: causal ? A.causal() : A.full() });
const fed = (x, weights) => project(project(x, weights.up).map((line) => line.map(A.ACTIVATIONS.gelu)), weights.down);

// One block, part by part: the rows after each. `past` is the part that "add" adds. `enter` is added to what the feed-forward layer reads.
function block(input, weights, { attention, feed, add, norm, causal }, enter = null) {
  const parts = [], zeros = input.map((line) => line.map(() => 0));
  const push = (name, kind, rows, past = null) => { parts.push({ name, kind, rows, past }); return rows; };
  let x = push("input", "other", input);
  const branches = [
    { name: "attention", kind: "weight", on: attention, part: (y) => project(looked(y, weights, causal).output, weights.o) },
    { name: "feed-forward", kind: "value", on: feed, part: (y) => fed(y, weights) },
  ];
  for (const { name, kind, on, part } of branches) {
    if (enter && name === "feed-forward") x = push("change", "query", plus(x, enter));
    const from = parts.length - 1, y = norm === "before" ? push("norm", "output", normed(x)) : x;
    const branch = push(on ? name : `${name}, off`, on ? kind : "off", on ? part(y) : zeros), past = add ? from : null;
    if (norm === "after") x = push(add ? "add & norm" : "norm", "output", normed(add ? plus(x, branch) : branch), past);
    else x = add ? push("add", "output", plus(x, branch), past) : branch;
  }
  return parts;
}

const settings = (state) => ({ attention: state.get("attention"), feed: state.get("feed"), add: state.get("add"), norm: state.get("norm"), causal: state.get("causal") });
const changeOf = (state) => INPUT.map((line, i) => line.map((_, d) => (i === state.get("token") ? state.get("change")[d] : 0)));
function run(state) {
  const given = settings(state), change = changeOf(state), deep = state.get("where") === "feed";
  if (!deep) return { before: block(INPUT, LAYERS[0], given), after: block(plus(INPUT, change), LAYERS[0], given) };
  return { before: block(INPUT, LAYERS[0], given, change.map((line) => line.map(() => 0))), after: block(INPUT, LAYERS[0], given, change) };
}
// How far each position moved; what rounding alone does is no move.
const ROUNDING = 1e-12;
const moved = (a, b) => a.map((line, i) => { const far = A.norm(line.map((x, d) => x - b[i][d])); return far > ROUNDING ? far : 0; });

// How much the positions differ: their distance from their mean, as a share of their length, after each layer.
function variety(given) {
  let x = INPUT;
  const share = (rows) => {
    const middle = A.transpose(rows).map(mean), length = Math.sqrt(A.sum(rows.map((line) => A.dotProduct(line, line))));
    return length < 1e-12 ? 0 : Math.sqrt(A.sum(rows.map((line) => A.sum(line.map((y, d) => (y - middle[d]) ** 2))))) / length;
  };
  return [share(x), ...LAYERS.map((weights) => { x = block(x, weights, given).at(-1).rows; return share(x); })];
}

const small = (state) => {
  const x = state.get("where") === "feed" ? INPUT : plus(INPUT, changeOf(state));
  return { result: looked(state.get("norm") === "before" ? normed(x) : x, LAYERS[0], state.get("causal")), score: "scaled", rows: WORDS, columns: WORDS };
};

// The parts from top to bottom, arrows that go past them, and beside each part how far it moved at each position.
const DEEP = 50, BOX = 30; // px
function diagram(parent, state) {
  let parts = [], chosen = 0;
  const view = figure(parent, "The block, and how far each position moved after each part", draw, { most: 620, role: "group" });
  view.svg.classList.add("block-diagram");
  const ways = view.group("block-ways"), names = view.group("names"), cells = view.group("cells"), inks = view.group("inks"), boxes = view.group("boxes");
  function draw(width) {
    const left = 30, wide = Math.min(132, width * 0.34), start = left + wide + 18, side = Math.min((width - start) / WORDS.length, 74), y = (n) => 30 + n * DEEP;
    const middle = left + wide / 2, down = parts.slice(1).map((_, n) => `M${middle} ${y(n) + BOX}V${y(n + 1) - 5}m-4 -5l4 5l4 -5`);
    const around = parts.map(({ past }, n) => ({ past, n })).filter(({ past }) => past !== null).map(({ past, n }) => `M${left} ${y(past) + BOX / 2}C${left - 34} ${y(past) + BOX} ${left - 34} ${y(n)} ${left - 5} ${y(n) + BOX / 2}m-7 -1l7 1l-2 -7`);
    each(ways, "path", [...down, ...around], (d) => ({ d }));
    each(names, "text", WORDS, (text, i) => ({ x: start + (i + 0.5) * side, y: 16, "text-anchor": "middle", class: i === state.get("token") ? "of-query" : "", text }));
    const high = Math.max(1, ...parts.flatMap(({ moves }) => moves)), list = parts.flatMap(({ moves }, n) => moves.map((value, i) => ({ value, n, i })));
    each(cells, "rect", list, ({ value, n, i }) => ({ x: start + i * side + 1, y: y(n), width: side - 2, height: BOX, rx: 4, fill: shade(value / high).fill }));
    each(inks, "text", list, ({ value, n, i }) => ({ x: start + (i + 0.5) * side, y: y(n) + BOX / 2 + 4.5, "text-anchor": "middle", class: shade(value / high).ink === "#fff" ? "on-dark" : "on-light", text: value === 0 ? "0" : decimals(value) }));
    while (boxes.childElementCount > parts.length) boxes.lastElementChild.remove();
    parts.forEach(({ name, kind }, n) => {
      const box = boxes.children[n] ?? made(n), [rect, text] = box.children;
      set(box, { class: `block-part ${kind}${n === chosen ? " on" : ""}`, "aria-label": `${name}: show its numbers`, "aria-pressed": String(n === chosen) });
      set(rect, { x: left, y: y(n), width: wide, height: BOX, rx: 7 });
      set(text, { x: middle, y: y(n) + BOX / 2 + 4.5, "text-anchor": "middle", text: name });
    });
    return y(parts.length - 1) + BOX + 6;
  }
  function made(n) {
    const box = makeSvg("g", boxes, { role: "button", tabindex: 0 });
    makeSvg("rect", box);
    makeSvg("text", box);
    box.addEventListener("click", () => state.set({ part: n }));
    box.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); state.set({ part: n }); } });
    return box;
  }
  return { update(next, at) { parts = next; chosen = at; view.redraw(); } };
}

function build(stage, { state }) {
  const top = row(stage);
  choice(top, state, "token", { label: "change", options: WORDS.map((text, value) => ({ value, text })) });
  choice(top, state, "where", { label: "before", options: [{ value: "block", text: "the block" }, { value: "feed", text: "feed-forward" }] });
  const middle = row(stage);
  toggle(middle, state, "attention", { label: "attention" });
  toggle(middle, state, "feed", { label: "feed-forward" });
  toggle(middle, state, "add", { label: "add" });
  toggle(middle, state, "causal", { label: "causal mask" });
  choice(middle, state, "norm", { label: "norm", options: [{ value: "after", text: "after", title: "norm(x + part(x)), as in the paper of 2017" }, { value: "before", text: "before", title: "x + part(norm(x)), as in GPT-2 and later models" }, { value: "none", text: "none" }] });

  const panels = make("div", stage, { name: "panels two" }), left = make("div", panels), right = make("div", panels);
  make("p", left, { text: "How far the vector of each position moved; press a part to see its numbers", name: "part-title" });
  const picture = diagram(left, state);
  const said = make("p", left, { name: "sentence", role: "status" });
  const title = make("p", right, { name: "part-title" });
  const grips = columns(right, { label: "What is added to the vector of the chosen word", low: -2, high: 2, height: 150, most: 420, state, field: "change" });
  presets(row(right, "below block-set"), state, [{ text: "no change", values: { change: [0, 0, 0, 0] } }, { text: "first number + 1", values: { change: [1, 0, 0, 0] } }, { text: "all four + 1", values: { change: [1, 1, 1, 1] }, title: "a norm in front of a part takes this away" }], "Set");
  const after = make("p", right, { name: "part-title" });
  const numbers = heatmap(right, { label: "Numbers after the chosen part", most: 420, largest: 48 });
  const readings = make("div", right, { name: "readings" }), means = reading(readings, "mean of each row"), spreads = reading(readings, "spread of each row"), share = reading(readings, "positions changed");

  const lower = make("div", stage, { name: "panels two block-lower" }), one = make("div", lower), two = make("div", lower);
  make("p", one, { text: "How much positions still differ after several such blocks (1: entirely, 0: all alike)", name: "part-title" });
  const chart = curves(one, { label: "How much positions differ, against the number of blocks", height: 220, xName: "blocks", most: 620, yFormat: (y) => short(y, 1), xFormat: String });
  make("p", two, { text: "Work of one block of a real size, d_ff = 4 d_model", name: "part-title" });
  const sliders = row(two);
  slider(sliders, state, "length", { label: "tokens n", low: 16, high: 131072, log: true, step: 1, format: thousands, ticks: [{ value: 128, text: "128" }, { value: 4096, text: "4 096" }] });
  choice(sliders, state, "width", { label: "d_model", options: WIDTHS });
  const work = bars(two, { label: "Operations of the parts", names: 92, numbers: 80, row: 22, high: (items) => Math.max(...items.map(({ value }) => value)) });
  const sizes = make("div", two, { name: "readings" }), ofAttention = reading(sizes, "parameters of attention, 4 d²"), ofFeed = reading(sizes, "of feed-forward, 8 d²"), even = reading(sizes, "attention costs as much at n =");

  return () => {
    const { before, after: now } = run(state), token = state.get("token"), at = Math.min(state.get("part"), now.length - 1);
    const parts = now.map((part, n) => ({ ...part, moves: moved(part.rows, before[n].rows) })), chosen = parts[at];
    picture.update(parts, at);
    title.textContent = `Drag: what is added to “${WORDS[token]}”, ${state.get("where") === "feed" ? "in front of the feed-forward layer" : "in the input of the block"}`;
    grips.update(state.get("change").map((value, d) => ({ name: DIMENSIONS[d], value, kind: "query" })));
    const others = (part) => part.moves.filter((x, i) => i !== token && x > 0).length, places = (count) => `${count === 0 ? "no" : count} other ${count === 1 ? "position" : "positions"}`;
    const found = (name) => parts.find((part) => part.name === name), looks = found("attention"), feeds = found("feed-forward");
    said.textContent = [looks ? `After attention ${places(others(looks))} moved.` : "Attention is off.", feeds ? `After feed-forward ${places(others(feeds))} moved${looks && state.get("where") === "block" && others(feeds) ? ": those that had moved before it" : ""}.` : "Feed-forward is off."].join(" ");
    after.textContent = `After “${chosen.name}”: four numbers for each position`;
    numbers.update({ values: chosen.rows, rows: WORDS, columns: DIMENSIONS, signed: true, high: Math.max(...chosen.rows.flat().map(Math.abs), 1), row: token });
    const range = (list) => { const [low, high] = [Math.min(...list), Math.max(...list)].map((x) => decimals(x)); return low === high ? low : `${low} … ${high}`; };
    means(range(chosen.rows.map(mean)));
    spreads(range(chosen.rows.map(spread)));
    share(`${chosen.moves.filter((x) => x > 0).length} of ${WORDS.length}`);
    const given = settings(state), line = (name, kind, add) => ({ name, kind, dashed: add !== given.add, points: variety({ ...given, add }).map((y, n) => [n, y]) });
    chart.update({ lines: [line("with add", "value", true), line("without", "query", false)], low: 0, high: DEPTH, bottom: 0, top: 1, room: 70 });
    const n = state.get("length"), d = state.get("width"), operations = [["projections", "weight", 8 * n * d * d], ["pairs", "query", 4 * n * n * d], ["feed-forward", "value", 16 * n * d * d]];
    work.update(operations.map(([name, kind, value]) => ({ name, kind, value, text: brief(value) })));
    ofAttention(brief(4 * d * d));
    ofFeed(brief(8 * d * d));
    even(thousands(2 * d));
  };
}

// One of the two widths.
const width = (initial) => ({ initial, read: (text) => WIDTHS.find((d) => String(d) === text), write: String, same: (one, other) => one === other });

export const chapter = {
  number: 11,
  name: "block",
  title: "The block",
  text: [
    "A block is attention, which lets positions read each other, and a feed-forward layer, which works on each position alone; each part's result is added to what came in, and a norm brings it back to one size.",
    "Change the vector of one word and watch which positions move after each part.",
  ],
  predict: {
    question: "The vector of “cat” is changed just in front of the feed-forward layer. At which positions does the output of the block change?",
    options: ["at “cat” only", "at all positions", "at “cat” and the words after it"],
    answer: 0,
    because: "The feed-forward layer, add and norm treat every position by itself. Only attention carries something from one position to another, and it is already over. The next block's attention will spread it.",
  },
  notice: [
    "Change the input of the block: after attention other positions move too, because they read the changed word. Feed-forward alters how far each one moved, but none that stood still begins to move: switch attention off, or put the change in front of feed-forward.",
    "With the causal mask a change moves the word itself and later ones, never earlier ones.",
    "Add: the part only has to find what is to be changed, and the word's own vector goes past it. Without add, positions become alike after a few blocks, and a part that gives nothing leaves nothing.",
    "Norm: press “add & norm”. Every row has mean 0 and spread 1, whatever you drag, so numbers neither grow nor fade from block to block. Models since GPT-2 put the norm in front of each part: the sums then grow, what the parts read does not, and “all four + 1” moves nothing but the word itself.",
    "Feed-forward has twice the parameters of attention (8 d² against 4 d²). Its work grows with n, that of the pairs with n²: attention as a whole costs more from n = 2 d on, its pairs alone from n = 4 d.",
  ],
  exercise: { number: 13 },
  experiments: [{ command: "regard lab ffn", about: "measures what attention and feed-forward cost as texts grow, and what each can learn alone." }],
  fields: {
    token: whole(1, 0, WORDS.length - 1), where: word("block", ["block", "feed"]), change: vector([1, 0, 0, 0], 2, 1), attention: flag(true), feed: flag(true), add: flag(true), causal: flag(),
    norm: word("after", ["after", "before", "none"]), part: whole(2, 0, 8), length: whole(512, 16, 131072), width: width(768),
  },
  small,
  row: 1,
  build,
};
