// The page: a head of a layer as a map or as lines, and the pictures of all heads to choose from.

import { css, range, tableFor } from "./colors.js";
import { data, layersOf, mergeable, shown, wordy } from "./data.js";
import { checkbox, chooser, clamp, download, fill, label, make, number, segmented, tooltip } from "./dom.js";
import { heatmap } from "./heatmap.js";
import { lines } from "./shared/lines.js";
import { overview } from "./overview.js";
import { pairView } from "./pair.js";

const root = document.documentElement, dark = window.matchMedia("(prefers-color-scheme: dark)");
const [firstLayer, firstHead] = data.start;
// zoom: null is automatic, 0 all at once, else px of a cell; `heads` are those whose lines are drawn, of the current layer
const state = { layer: firstLayer, head: firstHead, heads: new Set([firstHead]), view: 0, kind: "map", own: false, words: false, at: null, pinned: null, zoom: null, rowHeight: null, threshold: null, pairs: "", special: true };
const layers = () => layersOf(state.words), current = () => layers()[state.layer];
const tip = tooltip();

let ofWords = {};
const ofHeads = new Map(); // limits that belong to one layer or head, which every step of the pointer needs
function ownLimits(layer, head, power) {
  const all = !state.own, of = [layer.name, all ? "" : head, state.view, state.words, layer.signed].join();
  const size = layer.down.count * layer.across.count, cells = layer.cells[state.view];
  if (!ofHeads.has(of)) ofHeads.set(of, range(cells, all ? 0 : head * size, all ? cells.length : (head + 1) * size, power, layer.signed));
  return ofHeads.get(of);
}
function limits(layer, head) {
  const [low, high, power] = data.views[state.view].limits;
  if (state.own || layer.signed) return ownLimits(layer, head, power);
  if (!state.words) return { low, high, power };
  return ofWords[state.view] = ofWords[state.view] || shown.map((n) => layers()[n]).filter((each) => !each.signed)
    .map((each) => range(each.cells[state.view], 0, each.cells[state.view].length, power))
    .reduce((one, other) => ({ low: Math.min(one.low, other.low), high: Math.max(one.high, other.high), power }));
}

const page = { state, layers, current, limits, tip, choose, pin };

const header = make("header", document.body);
make("h1", header, data.title || data.sentence || "Attention");
if (data.about) make("p", header, data.about, "about");
const bar = make("div", document.body, undefined, "bar");
const layered = data.layers.length > 1, several = layered || data.layers.some((layer) => layer.heads.length > 1);
const drawable = (layer) => !layer.refused && layer.exact && !layer.signed;
const kinds = !data.layers.some(drawable) ? null : segmented(bar, "view", [["map", "map"], ["lines", "lines"]], (kind) => { state.kind = kind; state.at = null; draw(); });
const layerChoice = layered ? chooser(bar, "layer", data.layers.map((layer, n) => [n, layer.name, layer.refused]), (value) => choose(Number(value), state.head)) : null;
const headChoice = several ? chooser(bar, "head", [], (value) => choose(state.layer, Number(value))) : null;
if (data.views.length > 1) chooser(bar, "cells", data.views.map((view, n) => [n, view.name]), (value) => { state.view = Number(value); redraw(); });
if (several) chooser(bar, "colors", [["all", "one scale for all"], ["own", "scale of each head"]], (value) => { state.own = value === "own"; redraw(); });
if (wordy) {
  const box = checkbox(bar, "words", (on) => { state.words = on; state.at = state.pinned = null; tip.hide(); redraw(); });
  box.disabled = !mergeable;
  box.parentElement.title = mergeable ? "sub-words merged: the sum over the tokens of a key, the mean over those of a query"
    : "words need a cell for every token; the cells of this page hold several";
}
const zooming = label(make("div", bar, undefined, "segmented"), "zoom");
zooming.setAttribute("role", "group");
for (const [text, name, direction] of [["−", "smaller", -1], ["all", "all at once", 0], ["+", "larger", 1]]) {
  label(make("button", zooming, text), name).addEventListener("click", () => zoom(direction));
}
const shade = make("button", bar, "light / dark");
root.classList.toggle("dark", dark.matches);
shade.addEventListener("click", () => { root.classList.toggle("dark"); draw(); });

const body = make("div", document.body, undefined, layered ? "body layered" : "body");
const side = several ? make("div", body, undefined, "side") : null;
const picker = side ? overview(page, side) : null;
if (side && data.opened) make("p", side, data.opened, "note");
const main = make("main", body, undefined, "main");

const mapped = make("div", main);
const map = heatmap(page, mapped);
const scale = make("div", mapped, undefined, "scale");
const low = make("span", scale), ramp = make("canvas", scale), high = make("span", scale), bend = make("span", scale);
const key = make("span", scale, undefined, "hidden-key"), word = make("span", scale, "hidden");
ramp.width = 180;
ramp.height = 12;

const lined = make("div", main), chips = label(make("div", lined, undefined, "chips"), "heads whose lines are drawn");
chips.setAttribute("role", "group");
const tools = make("div", lined, undefined, "bar"), least = make("input", make("label", tools, "weights from"));
least.type = "range";
least.min = 0;
least.max = 100;
label(least, "smallest weight that is drawn");
const leastText = make("output", least.parentElement);
const pairChoice = chooser(tools, "pairs", [["", "all"], ["AA", "A → A"], ["AB", "A → B"], ["BA", "B → A"], ["BB", "B → B"]], (value) => { state.pairs = value; drawLines(); });
const noSpecial = checkbox(tools, "without special tokens", (on) => { state.special = !on; drawLines(); });
const saving = make("button", tools, "save SVG"), copying = make("button", tools, "copy SVG"), copied = make("output", tools, "", "note");
const stage = make("div", lined, undefined, "lines");
const drawing = lines(stage, { tell, choose: (row, column) => pin({ row, column }) });
saving.addEventListener("click", () => download(new Blob([drawing.svg(heading())], { type: "image/svg+xml" }), "attention.svg"));
copying.addEventListener("click", () => copy(drawing.svg(heading())).then((done) => { copied.textContent = done ? "copied" : "this page may not copy: save it instead"; }));
least.addEventListener("input", () => { state.threshold = (Number(least.value) / 100) ** 2; drawLines(); });

const note = make("p", main, undefined, "note summary");
const vectors = pairView(page, main);

// What a token attends to, beside the drawing where there is room: over it, it would cover the lines.
function tell(texts, x, y) {
  if (!texts) return tip.hide();
  const left = stage.getBoundingClientRect().left;
  tip.show(left > 260 ? left : x, y, texts, undefined, left > 260);
}

const heading = () => `${data.title || data.sentence || "Attention"}: ${layered ? `${current().name}, ` : ""}head ${[...state.heads].sort((a, b) => a - b).map((n) => current().heads[n]).join(", ")}`;

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea", document.body, text, "offscreen");
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function choose(layer, head, { add = false, focused = false } = {}) {
  if (!data.layers[layer] || data.layers[layer].refused) return;
  const size = (n) => data.layers[n].rows.length * 65537 + data.layers[n].columns.length;
  if (size(layer) !== size(state.layer)) state.at = state.pinned = null;
  const same = layer === state.layer;
  state.layer = layer;
  state.head = clamp(head, 0, data.layers[layer].heads.length - 1);
  if (!add || !same || state.kind !== "lines") state.heads = new Set([state.head]);
  else if (!state.heads.delete(state.head)) state.heads.add(state.head);
  if (!state.heads.size) state.heads.add(state.head);
  draw(focused);
}

function pin(cell) {
  state.pinned = cell && state.pinned && cell.row === state.pinned.row && cell.column === state.pinned.column ? null : cell && { ...cell };
  draw();
  if (state.pinned) vectors.section.scrollIntoView({ block: "nearest" });
}

function zoom(direction) {
  if (state.kind === "map") return map.zoom(direction);
  const layer = current(), all = roomForLines() / Math.max(layer.down.count, layer.across.count);
  state.rowHeight = direction === 0 ? all : clamp(drawing.rowHeight() * (direction > 0 ? 1.3 : 1 / 1.3), 0.5, 48);
  drawLines();
}

const roomForLines = () => Math.max(window.innerHeight - stage.getBoundingClientRect().top - window.scrollY - 110, 0.62 * window.innerHeight, 300) - 40;

const colorOf = (head) => css(data.series[head % data.series.length]);

function drawLines() {
  const layer = current(), rows = layer.down.count, columns = layer.across.count, cells = layer.cells[0];
  if (state.threshold === null) state.threshold = clamp(1 / Math.max(columns, 1), 0.02, 0.1);
  least.value = Math.sqrt(state.threshold) * 100;
  leastText.textContent = state.threshold.toFixed(3);
  chips.replaceChildren();
  layer.heads.forEach((name, head) => {
    const on = state.heads.has(head), chip = label(make("button", chips, name), `head ${name}`);
    chip.setAttribute("aria-pressed", String(on));
    chip.style.setProperty("--chip", colorOf(head));
    chip.addEventListener("click", () => {
      if (!state.heads.delete(head)) state.heads.add(head);
      if (!state.heads.size) state.heads.add(head);
      drawLines();
      chips.children[head].focus();
    });
  });
  if (layer.heads.length > 1) {
    const all = state.heads.size === layer.heads.length, every = make("button", chips, all ? "only one" : "all heads");
    every.addEventListener("click", () => { state.heads = new Set(all ? [state.head] : layer.heads.keys()); drawLines(); chips.lastChild.focus(); });
  } else chips.replaceChildren();
  const split = layer.down.side(0) && layer.across.side(0);
  pairChoice.parentElement.hidden = !split;
  const anySpecial = Array.from({ length: columns }, (_, n) => n).some((n) => layer.across.special(n));
  noSpecial.parentElement.hidden = !anySpecial;
  const fits = (row, column) => (!state.pairs || !split || layer.down.side(row) + layer.across.side(column) === state.pairs)
    && (state.special || !(layer.down.special(row) || layer.across.special(column)));
  const chosen = [...state.heads].sort((one, other) => one - other);
  stage.style.maxHeight = `${roomForLines() + 60}px`;
  drawing.show({
    queries: Array.from({ length: rows }, (_, n) => layer.down.label(n)),
    keys: Array.from({ length: columns }, (_, n) => layer.across.label(n)),
    heads: chosen.map((head) => ({ name: layer.heads[head], color: colorOf(head), weight: (row, column) => cells[(head * rows + row) * columns + column] })),
    threshold: state.threshold, allowed: fits, height: state.rowHeight, room: roomForLines(),
  });
  const drawn = drawing.drawn(), some = drawn.cut ? "the strongest " : "";
  const names = chosen.length > 1 ? `heads ${chosen.map((head) => layer.heads[head]).join(", ")}` : `head ${layer.heads[chosen[0]]}`;
  note.textContent = `${layered ? `${layer.name[0].toUpperCase()}${layer.name.slice(1)}, ` : ""}${names}: ${some}${drawn.count.toLocaleString("en")} of ${drawn.all.toLocaleString("en")} weights, ${Math.round(100 * drawn.share)}% of their sum. `
    + "Hover a token, or move with the arrow keys, for all its lines; click it to keep them, then one at the other side for the vectors of the pair.";
}

function redraw() {
  ofWords = {};
  map.forget();
  if (picker) picker.redraw();
  draw();
}

function draw(focused = false) {
  const layer = current();
  if (!layer || layer.refused) { note.textContent = "No layer can be shown."; mapped.hidden = lined.hidden = true; return; }
  if (kinds) kinds(state.kind);
  if (layerChoice) layerChoice.value = state.layer;
  if (headChoice) { fill(headChoice, layer.heads.map((name, n) => [n, name])); headChoice.value = state.head; }
  if (picker) picker.mark(focused);
  const asLines = state.kind === "lines" && drawable(layer);
  mapped.hidden = asLines;
  lined.hidden = !asLines;
  if (asLines) drawLines(); else drawMap(layer);
  // beside the map where there is room
  const beside = side && layered && window.innerWidth >= 1000 ? side : main;
  if (vectors.section.parentElement !== beside) beside.append(vectors.section);
  vectors.draw();
}

function drawMap(layer) {
  map.draw();
  const colors = limits(layer, state.head);
  const strokes = ramp.getContext("2d");
  tableFor(colors).forEach((color, n) => { strokes.fillStyle = css(color); strokes.fillRect(n * 180 / 256, 0, 1, 12); });
  low.textContent = number(colors.low);
  high.textContent = number(colors.high);
  bend.textContent = colors.power === 1 ? "" : "square root scale";
  key.hidden = word.hidden = !layer.cells[state.view].includes(-Infinity);
  const as = layer.words ? " Between words: the sum over the tokens of a key, the mean over those of a query." : "";
  const digits = layer.half ? " Weights are stored in half precision (3 digits)." : "";
  note.textContent = `${layer.notes[state.view]}.${as}${digits} Hover or use the arrow keys for ${layer.half ? "" : "exact "}numbers${layer.signed ? "" : "; click, or press Enter, for the vectors of a pair"}.`;
}

window.addEventListener("resize", () => { if (picker) picker.redraw(); draw(); });
dark.addEventListener("change", () => { root.classList.toggle("dark", dark.matches); draw(); });
redraw();
export default page;
