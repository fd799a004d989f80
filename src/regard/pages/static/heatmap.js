// The map of the chosen head. Its labels stay at the edges while it is scrolled, and only what is in view is drawn.

import { colorOf, image, inkOn } from "./colors.js";
import { data, exact } from "./data.js";
import { FONT, clamp, label, make, ratio, short } from "./dom.js";

const WORDS = 10.5; // px: the smallest cell beside which a word can be read
const LARGEST = 64, NUMBERED = 34, MOST_LETTERS = 18;

export function heatmap(page, parent) {
  const frame = make("div", parent, undefined, "map"), sizer = make("div", frame, undefined, "sizer");
  const canvas = label(make("canvas", sizer), "Heatmap of attention weights; arrow keys move from cell to cell, Enter shows the vectors of a pair, plus and minus zoom");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  const context = canvas.getContext("2d");
  let place = { left: 0, top: 0, side: 1 }, kept = { of: "", canvas: null };

  // Labels of an axis, and the room they take; kept, because the map is drawn at every step of the pointer.
  function labels(axis) {
    if (axis.labels) return axis;
    context.font = `12px ${FONT}`;
    const widest = (texts) => Math.ceil(texts.reduce((most, text) => Math.max(most, context.measureText(text).width), 0));
    axis.labels = Array.from({ length: axis.count }, (_, n) => short(axis.label(n), MOST_LETTERS));
    axis.room = widest(axis.labels.slice(0, 2000));
    axis.beyond = widest(axis.labels.slice(-3));
    return axis;
  }

  // Where labels and cells are, and how large a cell is: as the window allows; where words have room they are kept.
  function layout(layer) {
    const rows = Math.max(layer.down.count, 1), columns = Math.max(layer.across.count, 1);
    const down = labels(layer.down), across = labels(layer.across), most = parent.clientWidth;
    const left = Math.min(down.room, Math.max(most * 0.34, 60)) + 30, top = Math.ceil(across.room * 0.87) + 34;
    const beyond = Math.min(across.beyond / 2 + 6, 90);
    const above = frame.getBoundingClientRect().top + window.scrollY;
    const tall = Math.max(window.innerHeight - above - 100, 0.62 * window.innerHeight, 280);
    const room = (most - left - beyond - 14) / columns, high = (tall - top - 8) / rows;
    const readable = layer.exact && Math.max(rows, columns) <= 128 ? WORDS : 1;
    const fit = Math.max(Math.min(room, high), 1);
    const auto = clamp(Math.min(room, Math.max(high, Math.min(room, WORDS))), readable, LARGEST);
    const side = page.state.zoom === null ? auto : page.state.zoom === 0 ? Math.min(fit, LARGEST) : clamp(page.state.zoom, 1, LARGEST);
    return { left, top, side, beyond, tall };
  }

  function draw() {
    const layer = page.current();
    if (!layer || layer.refused) return;
    const { left, top, side, beyond, tall } = layout(layer);
    const wide = layer.across.count * side, deep = layer.down.count * side;
    sizer.style.width = `${left + wide + beyond}px`;
    sizer.style.height = `${top + deep + 8}px`;
    frame.style.height = `${Math.min(top + deep + 8 + (left + wide + beyond > parent.clientWidth ? 16 : 0), tall)}px`;
    const width = Math.min(frame.clientWidth, Math.ceil(left + wide + beyond)), height = frame.clientHeight;
    canvas.width = Math.ceil(width * ratio());
    canvas.height = Math.ceil(height * ratio());
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const x = left - frame.scrollLeft, y = top - frame.scrollTop;
    place = { left: x, top: y, side, edgeLeft: left, edgeTop: top };
    Object.assign(canvas.dataset, { left: x, top: y, side });
    const style = getComputedStyle(document.documentElement), ink = style.getPropertyValue("--ink"), mark = style.getPropertyValue("--mark");
    const scale = page.limits(layer, page.state.head);
    context.setTransform(ratio(), 0, 0, ratio(), 0, 0);
    context.save();
    context.beginPath();
    context.rect(left, top, width - left, height - top);
    context.clip();
    context.fillStyle = style.getPropertyValue("--hidden");
    context.fillRect(x, y, wide, deep);
    context.imageSmoothingEnabled = false;
    const of = [page.state.layer, page.state.head, page.state.view, page.state.own, page.state.words].join();
    if (kept.of !== of) kept = { of, canvas: image(layer, page.state.view, page.state.head, 1, scale) };
    if (layer.down.count && layer.across.count) context.drawImage(kept.canvas, x, y, wide, deep);
    const seen = (start, edge, end, count) => [clamp(Math.floor((edge - start) / side), 0, count), clamp(Math.ceil((end - start) / side), 0, count)];
    const [firstRow, lastRow] = seen(y, top, height, layer.down.count), [firstColumn, lastColumn] = seen(x, left, width, layer.across.count);
    if (side >= NUMBERED && layer.exact) numbers(layer, scale, { firstRow, lastRow, firstColumn, lastColumn, x, y, side });
    const at = page.state.at;
    for (const [cell, line] of [[page.state.pinned, [4, 3]], [at, []]]) {
      if (!cell) continue;
      context.strokeStyle = mark;
      context.lineWidth = 2;
      context.setLineDash(line);
      context.strokeRect(x + cell.column * side, y + cell.row * side, Math.max(side, 3), Math.max(side, 3));
      context.setLineDash([]);
    }
    context.restore();
    edges(layer, { x, y, left, top, side, width, height, ink, mark, soft: style.getPropertyValue("--soft"), firstRow, lastRow, firstColumn, lastColumn });
  }

  function numbers(layer, scale, { firstRow, lastRow, firstColumn, lastColumn, x, y, side }) {
    const cells = layer.cells[page.state.view], rows = layer.down.count, columns = layer.across.count;
    context.font = `${clamp(side * 0.3, 10, 13)}px ${FONT}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let row = firstRow; row < lastRow; row++) for (let column = firstColumn; column < lastColumn; column++) {
      const value = cells[(page.state.head * rows + row) * columns + column], color = colorOf(value, scale);
      if (!color) continue;
      context.fillStyle = inkOn(color);
      const size = Math.abs(value);
      const text = !Number.isFinite(value) ? String(value) : size < 1000 ? value.toFixed(size < 10 ? 2 : 0) : value.toPrecision(2);
      context.fillText(text.replace(/^-(0\.00)$/, "$1").replace("-", "−"), x + (column + 0.5) * side, y + (row + 0.5) * side);
    }
  }

  // Labels at the left and the top: all where there is room, else some, and always those of the current cell.
  function edges(layer, { x, y, left, top, side, width, height, ink, mark, soft, firstRow, lastRow, firstColumn, lastColumn }) {
    const at = page.state.at, every = Math.max(1, Math.ceil(WORDS / side));
    const write = (n, here) => n % every === 0 && !(at && Math.abs(n - here) * side < 10) || (at && n === here);
    context.font = `${clamp(side * 0.85, 10, 13)}px ${FONT}`;
    context.textBaseline = "middle";
    context.save();
    context.beginPath();
    context.rect(0, top - 6, left, height - top + 6);
    context.clip();
    context.textAlign = "right";
    for (let n = firstRow; n < lastRow; n++) {
      if (!write(n, at && at.row)) continue;
      context.fillStyle = at && at.row === n ? mark : ink;
      context.fillText(layer.down.labels[n], left - 6, y + (n + 0.5) * side, left - 22);
    }
    context.restore();
    context.save();
    context.beginPath();
    context.rect(left - 8, 0, width - left + 8, top);
    context.clip();
    context.textAlign = "left";
    for (let n = firstColumn; n < lastColumn; n++) {
      if (!write(n, at && at.column)) continue;
      context.save();
      context.translate(x + (n + 0.5) * side, top - 5);
      context.rotate(-Math.PI / 3);
      context.fillStyle = at && at.column === n ? mark : ink;
      context.fillText(layer.across.labels[n], 0, 0);
      context.restore();
    }
    context.restore();
    context.fillStyle = soft;
    context.font = `11px ${FONT}`;
    context.textAlign = "right";
    context.fillText("keys →", left - 6, top - 8);
    context.save();
    context.translate(8, top + 2);
    context.rotate(-Math.PI / 2);
    context.fillText("← queries", 0, 0);
    context.restore();
  }

  function tell(at, x, y) {
    const layer = page.current(), { row, column } = at;
    const value = layer.cells[page.state.view][(page.state.head * layer.down.count + row) * layer.across.count + column];
    const lines = [["query", layer.down, row], ["key", layer.across, column]].map(([what, axis, n]) => {
      const text = axis.text(n);
      return [`${what} ${axis.place(n)}${text ? ": " : ""}`, text];
    });
    const name = layer.words ? "weight between words" : data.views[page.state.view].name.replace("weight", layer.signed ? "difference" : "weight");
    page.tip.show(x, y, lines, value === -Infinity ? "hidden" : `${name} ${exact(layer, value)}`);
  }

  function move(row, column, x, y) {
    const layer = page.current();
    if (!layer || layer.refused || !(row >= 0 && row < layer.down.count && column >= 0 && column < layer.across.count)) return leave();
    if (!page.state.at || page.state.at.row !== row || page.state.at.column !== column) {
      page.state.at = { row, column };
      draw();
    }
    tell(page.state.at, x, y);
  }

  function leave() {
    page.tip.hide();
    if (page.state.at) { page.state.at = null; draw(); }
  }

  function under(event) {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    if (x < place.edgeLeft || y < place.edgeTop) return null;
    return { row: Math.floor((y - place.top) / place.side), column: Math.floor((x - place.left) / place.side) };
  }
  const follow = (event) => { const cell = under(event); if (cell) move(cell.row, cell.column, event.clientX, event.clientY); else leave(); };
  canvas.addEventListener("pointermove", follow);
  canvas.addEventListener("pointerdown", follow);
  canvas.addEventListener("click", () => { if (page.state.at) page.pin(page.state.at); });
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") leave(); });
  canvas.addEventListener("blur", leave);
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const layer = page.current();
    if (event.key === "Escape") { page.pin(null); return leave(); }
    if (event.key === "Enter" && page.state.at) return page.pin(page.state.at);
    if (["+", "=", "-", "0"].includes(event.key) && !event.ctrlKey && !event.metaKey) return zoom({ "+": 1, "=": 1, "-": -1, 0: 0 }[event.key]);
    if (!step || !layer || layer.refused || !layer.down.count || !layer.across.count) return;
    event.preventDefault();
    const at = page.state.at;
    const row = at ? clamp(at.row + step[0], 0, layer.down.count - 1) : 0;
    const column = at ? clamp(at.column + step[1], 0, layer.across.count - 1) : 0;
    reveal(row, column);
    const box = canvas.getBoundingClientRect();
    move(row, column, box.left + place.left + (column + 1) * place.side, box.top + place.top + (row + 1) * place.side);
  });

  // Scroll until a cell is in view.
  function reveal(row, column) {
    const { edgeLeft, edgeTop, side } = place, x = edgeLeft + column * side, y = edgeTop + row * side;
    if (x - frame.scrollLeft < edgeLeft || x + side - frame.scrollLeft > frame.clientWidth) frame.scrollLeft = x - (frame.clientWidth + edgeLeft) / 2;
    if (y - frame.scrollTop < edgeTop || y + side - frame.scrollTop > frame.clientHeight) frame.scrollTop = y - (frame.clientHeight + edgeTop) / 2;
    const below = canvas.getBoundingClientRect().top + y - frame.scrollTop;
    if (below > window.innerHeight - 40 || below < 0) window.scrollBy(0, below - window.innerHeight / 2);
    draw();
  }

  // 1 and -1 zoom in and out around the middle, or around a point of the canvas; 0 shows everything.
  function zoom(direction, point) {
    const before = place.side, x = point ? point.x : (frame.clientWidth + place.edgeLeft) / 2, y = point ? point.y : (frame.clientHeight + place.edgeTop) / 2;
    const row = (y - place.top) / before, column = (x - place.left) / before;
    page.state.zoom = direction === 0 ? 0 : clamp(before * (direction > 0 ? 1.35 : 1 / 1.35), 1, LARGEST);
    draw();
    frame.scrollLeft = place.edgeLeft + column * place.side - x;
    frame.scrollTop = place.edgeTop + row * place.side - y;
    draw();
  }
  frame.addEventListener("scroll", draw);
  frame.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoom(event.deltaY < 0 ? 1 : -1, { x: event.clientX - box.left, y: event.clientY - box.top });
  }, { passive: false });
  return { frame, draw, zoom, leave, forget() { kept.of = ""; } };
}
