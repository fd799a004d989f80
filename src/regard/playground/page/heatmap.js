// A matrix as colors: rows are queries, columns are keys. Numbers stand in the cells where there is room.
//
//   const view = heatmap(parent, { label, hover: (cell or null) => …, press: (cell) => … });
//   view.update({ values, rows, columns, hidden: (i, j) => bool, high: 1, at: {row, column}, row, column, format });
//
// `rows` and `columns` are tokens, or null. A hidden cell is hatched. With `press` cells can be clicked, or chosen with
// the arrow keys and pressed with Enter. With `paint: (cell, first) => …` cells are drawn on: it is called for the cell where
// a stroke begins (first is true) and for every further cell that the pointer crosses. `sums` writes each row's sum at the
// right; "both" also each column's below.

import { balance, decimals, each, figure, set, shade } from "./draw.js";
import { makeSvg } from "./shared/dom.js";

const LETTER = 7, LARGEST = 56; // px
let patterns = 0;

export function heatmap(parent, { label, hover = null, press = null, paint = null, most = 560, largest = LARGEST, sums = false }) {
  let model = null, box = { left: 0, top: 0, side: 1 }, at = null, last = null, placed = "", painted = [];
  const touched = press || hover || paint;
  const view = figure(parent, label, draw, { most, role: touched ? "application" : "img" }), { svg } = view;
  svg.classList.add("heatmap");
  const hatch = `hatch-${(patterns += 1)}`, pattern = makeSvg("pattern", makeSvg("defs", svg), { id: hatch, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  makeSvg("rect", pattern, { width: 6, height: 6, class: "hidden-ground" });
  makeSvg("line", pattern, { x1: 0, y1: 0, x2: 0, y2: 6, class: "hidden-line" });
  const cells = view.group("cells"), inks = view.group("inks"), left = view.group("rows"), top = view.group("columns"), ends = view.group("sums"), feet = view.group("sums"), frame = view.group("frame");
  if (touched) svg.setAttribute("tabindex", 0);
  if (paint) svg.classList.add("painted");

  function draw(width) {
    if (!model) return 10;
    const { values, rows, columns } = model, high = values.length, wide = high ? values[0].length : 0;
    const longest = (names) => (names ? Math.max(...names.map((name) => Array.from(name).length), 1) : 0);
    const room = rows ? Math.min(longest(rows) * LETTER + 12, width * 0.34) : 4;
    const above = columns ? Math.min(longest(columns) * LETTER * 0.72 + 14, 110) : 4, beyond = (columns ? 18 : 2) + (sums ? 46 : 0);
    const side = Math.min((width - room - beyond) / Math.max(wide, 1), largest);
    box = { left: room, top: above, side, high, wide };
    const gap = side > 14 ? 1.5 : 0, x = (j) => room + j * side, y = (i) => above + i * side;
    const list = values.flatMap((row, i) => row.map((value, j) => ({ value, i, j, hidden: model.hidden ? model.hidden(i, j) : false })));
    const color = (value) => (model.signed ? balance(value / (model.high ?? 1)) : shade(value / (model.high ?? 1)));
    const fills = list.map(({ value, hidden }) => (hidden ? `url(#${hatch})` : color(value).fill)), layout = [room, above, side, high, wide].join();
    if (layout !== placed) {
      each(cells, "rect", list, ({ i, j }, n) => ({ x: x(j) + gap / 2, y: y(i) + gap / 2, width: side - gap, height: side - gap, rx: side > 14 ? 3 : 0, fill: fills[n] }));
    } else fills.forEach((fill, n) => { if (fill !== painted[n]) set(cells.children[n], { fill }); }); // where nothing moved, only what has another color
    [placed, painted] = [layout, fills];
    const write = side >= 30 && model.numbers !== false, format = model.format ?? ((value) => decimals(value));
    svg.style.setProperty("--number-size", `${Math.min(side * 0.3, 13)}px`);
    each(inks, "text", write ? list.filter(({ hidden }) => !hidden) : [], ({ value, i, j }) => ({
      x: x(j) + side / 2, y: y(i) + side / 2 + 4, "text-anchor": "middle", class: color(value).ink === "#fff" ? "on-dark" : "on-light", text: format(value),
    }));
    const every = Math.max(1, Math.ceil(11 / side)), some = (names) => (names ?? []).map((name, n) => ({ name, n })).filter(({ n }) => n % every === 0);
    each(left, "text", some(rows), ({ name, n }) => ({ x: room - 7, y: y(n) + side / 2 + 4, "text-anchor": "end", class: at && at.row === n ? "mark" : "", text: clipped(name, (room - 8) / LETTER) }));
    each(top, "text", some(columns), ({ name, n }) => ({ transform: `translate(${(x(n) + side / 2 - 2).toFixed(1)} ${(above - 6).toFixed(1)}) rotate(-48)`, class: at && at.column === n ? "mark" : "", text: clipped(name, 18) }));
    each(ends, "text", sums && every === 1 ? values : [], (row, i) => ({ x: x(wide) + 8, y: y(i) + side / 2 + 4, text: decimals(row.reduce((a, b, j) => a + (model.hidden && model.hidden(i, j) ? 0 : b), 0)) }));
    const below = sums === "both" && high && side >= 22;
    each(feet, "text", below ? values[0] : [], (_, j) => ({ x: x(j) + side / 2, y: y(high) + 18, "text-anchor": "middle", text: decimals(values.reduce((total, row, i) => total + (model.hidden && model.hidden(i, j) ? 0 : row[j]), 0)) }));
    drawFrame();
    return above + high * side + (below ? 26 : 6);
  }

  const clipped = (name, most) => { const letters = Array.from(name); return letters.length > most ? `${letters.slice(0, Math.max(Math.floor(most) - 1, 1)).join("")}…` : name; };

  // The cell that is looked at, and the row and the column that the chapter marks.
  function drawFrame() {
    const { left: x, top: y, side, wide, high } = box, marks = [];
    if (model.row !== undefined && model.row !== null) marks.push({ x: x - 1, y: y + model.row * side - 1, width: wide * side + 2, height: side + 2, class: "row" });
    if (model.column !== undefined && model.column !== null) marks.push({ x: x + model.column * side - 1, y: y - 1, width: side + 2, height: high * side + 2, class: "column" });
    const cell = at ?? model.at;
    if (cell) marks.push({ x: x + cell.column * side, y: y + cell.row * side, width: side, height: side, class: "cell" });
    each(frame, "rect", marks, (mark) => ({ ...mark, rx: 4 }));
  }

  function under(event) {
    const bounds = svg.getBoundingClientRect(), ratio = svg.viewBox.baseVal.width / bounds.width;
    const column = Math.floor(((event.clientX - bounds.left) * ratio - box.left) / box.side), row = Math.floor(((event.clientY - bounds.top) * ratio - box.top) / box.side);
    return model && row >= 0 && row < box.high && column >= 0 && column < box.wide ? { row, column } : null;
  }
  function go(cell) {
    if (at?.row === cell?.row && at?.column === cell?.column) return;
    at = cell;
    if (cell) set(svg, { "aria-description": spoken(cell) });
    if (hover) hover(cell);
    view.redraw();
  }
  function spoken({ row, column }) {
    const name = (names, n) => (names ? names[n] : String(n));
    const value = model.hidden && model.hidden(row, column) ? "hidden" : decimals(model.values[row][column], 3);
    return `query ${name(model.rows, row)}, key ${name(model.columns, column)}: ${value}`;
  }
  if (touched) {
    svg.addEventListener("pointermove", (event) => { const cell = under(event); if (last && cell) stroke(cell); go(cell); });
    svg.addEventListener("pointerleave", () => go(null));
    svg.addEventListener("blur", () => go(null));
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (event.key === "Escape") return go(null);
      if ((event.key === "Enter" || event.key === " ") && at && (press || paint)) { event.preventDefault(); return press ? press(at) : paint(at, true); }
      if (!step || !model) return;
      event.preventDefault();
      go(at ? { row: Math.min(Math.max(at.row + step[0], 0), box.high - 1), column: Math.min(Math.max(at.column + step[1], 0), box.wide - 1) } : { row: 0, column: 0 });
    });
  }
  // A quick pointer skips cells: those on the way are painted too.
  function stroke(cell) {
    const steps = Math.max(Math.abs(cell.row - last.row), Math.abs(cell.column - last.column)), from = last;
    for (let n = 1; n <= steps; n++) paint({ row: from.row + Math.round((n * (cell.row - from.row)) / steps), column: from.column + Math.round((n * (cell.column - from.column)) / steps) }, false);
    last = cell;
  }
  if (paint) {
    svg.addEventListener("pointerdown", (event) => {
      const cell = under(event);
      if (!cell) return;
      event.preventDefault();
      svg.setPointerCapture(event.pointerId);
      svg.focus({ preventScroll: true });
      last = cell;
      paint(cell, true);
    });
    for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, () => { last = null; });
  }
  if (press) svg.addEventListener("click", (event) => { const cell = under(event); if (cell) press(cell); });

  return { update(next) { model = next; view.redraw(); }, svg, look: go };
}
