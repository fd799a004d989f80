// One pair in full: its query and key vectors, their products by dimension, the score and the weight.

import { css, diverging } from "./colors.js";
import { exact } from "./data.js";
import { FONT, checkbox, clamp, label, make, number, ratio } from "./dom.js";
import { floats } from "./shared/numbers.js";

const ROW = 26, BARS = 84, LEFT = 44; // px

const signed = (value) => (value < 0 ? "−" : "") + number(Math.abs(value));

export function pairView(page, parent) {
  const section = label(make("section", parent, undefined, "pair"), "The vectors of one pair");
  section.hidden = true;
  const head = make("div", section, undefined, "pair-head"), title = make("h2", head);
  const close = label(make("button", head, "×"), "close");
  close.addEventListener("click", () => page.pin(null));
  const reason = make("p", section, undefined, "note");
  const body = make("div", section), tools = make("div", body, undefined, "bar");
  let sorted = false, order = [], current = null;
  checkbox(tools, "largest products first", (on) => { sorted = on; draw(); });
  const canvas = label(make("canvas", body), "Query, key and products by dimension; left and right move from dimension to dimension");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  const sums = make("p", body, undefined, "sums"), largest = make("p", body, undefined, "note");

  // q and k of a layer, decoded once.
  function vectors(layer) {
    if (!layer.vectors) return null;
    const stored = layer.vectors;
    if (!stored.q) Object.assign(stored, { q: floats(stored.query, stored.half), k: floats(stored.key, stored.half), l: stored.lse ? floats(stored.lse, false) : null });
    return stored;
  }

  function pair() {
    const layer = page.current(), at = page.state.pinned, { row, column } = at, rows = layer.down.count, columns = layer.across.count;
    const stored = vectors(layer), width = stored.width, from = (page.state.head * rows + row) * width, to = (stored.kv[page.state.head] * columns + column) * width;
    const q = stored.q.subarray(from, from + width), k = stored.k.subarray(to, to + width), products = Float64Array.from(q, (value, n) => value * k[n]);
    return { q, k, products, row, column, value: layer.cells[0][(page.state.head * rows + row) * columns + column], lse: stored.l ? stored.l[page.state.head * rows + row] : null, stored };
  }

  function draw() {
    const layer = page.current(), at = page.state.pinned;
    section.hidden = !at;
    if (!at) return;
    title.replaceChildren();
    title.append("query ");
    make("bdi", title, layer.down.text(at.row) || layer.down.place(at.row));
    title.append(" → key ");
    make("bdi", title, layer.across.text(at.column) || layer.across.place(at.column));
    const why = layer.words ? "Vectors belong to tokens: turn “words” off to see them." : layer.vectors ? "" : layer.without;
    reason.textContent = why;
    reason.hidden = !why;
    body.hidden = Boolean(why);
    if (why) return;
    current = pair();
    const { products, q, k, value, lse, stored } = current, width = stored.width;
    order = Array.from({ length: width }, (_, n) => n);
    if (sorted) order.sort((one, other) => Math.abs(products[other]) - Math.abs(products[one]));
    paint(-1);
    const sum = products.reduce((total, product) => total + product, 0), score = sum * stored.scale;
    const parts = [`Σ ${stored.names[0]}·${stored.names[1]} = ${signed(sum)}`];
    parts.push(stored.scale === 1 ? `score ${signed(score)}` : `× ${number(stored.scale)} = score ${signed(score)}`);
    if (stored.then.length) parts.push(`then ${stored.then.join(", ")}`);
    if (value === -Infinity) parts.push("hidden: no weight");
    else if (lse !== null && !stored.then.length) parts.push(`e^(${signed(score)} − ${signed(lse)}) = weight ${exact(layer, value)}`);
    else parts.push(`weight ${exact(layer, value)}`);
    sums.textContent = parts.join("  →  ");
    const top = [...order].sort((one, other) => Math.abs(products[other]) - Math.abs(products[one])).slice(0, 5);
    const off = stored.half ? " Vectors are stored in half precision (3 digits)." : "";
    largest.textContent = `Largest products: ${top.map((n) => `dimension ${n}: ${signed(q[n])} × ${signed(k[n])} = ${signed(products[n])}`).join("; ")}.${off}${lse === null || stored.then.length ? "" : " The number after the score is the log of the sum of e^score over the keys of this query."}`;
  }

  function paint(marked) {
    const { q, k, products, stored } = current, width = stored.width, style = getComputedStyle(document.documentElement);
    const room = Math.max(Math.min(section.clientWidth - 26, 1200), 220), cell = Math.max((room - LEFT) / width, 1), height = 2 * ROW + BARS + 14;
    canvas.width = Math.ceil(room * ratio());
    canvas.height = Math.ceil(height * ratio());
    canvas.style.width = `${room}px`;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d"), most = (values) => values.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0) || 1;
    context.setTransform(ratio(), 0, 0, ratio(), 0, 0);
    context.font = `12px ${FONT}`;
    context.textBaseline = "middle";
    const ink = style.getPropertyValue("--ink"), share = Math.max(most(q), most(k)), tallest = most(products);
    const color = (value, limit) => css(diverging[Math.round(clamp((value / limit + 1) / 2, 0, 1) * 255)]);
    [[stored.names[0], q, 0], [stored.names[1], k, ROW]].forEach(([name, values, y]) => {
      context.fillStyle = ink;
      context.fillText(name, 4, y + ROW / 2);
      order.forEach((n, place) => { context.fillStyle = color(values[n], share); context.fillRect(LEFT + place * cell, y + 2, Math.max(cell - (cell > 4 ? 1 : 0), 1), ROW - 4); });
    });
    const middle = 2 * ROW + 7 + BARS / 2;
    context.fillStyle = ink;
    context.fillText(`${stored.names[0]} × ${stored.names[1]}`, 4, middle);
    order.forEach((n, place) => {
      const tall = products[n] / tallest * BARS / 2;
      context.fillStyle = color(Math.sign(products[n]) * Math.max(Math.abs(products[n]), tallest * 0.35), tallest);
      context.fillRect(LEFT + place * cell, tall > 0 ? middle - tall : middle, Math.max(cell - (cell > 4 ? 1 : 0), 1), Math.max(Math.abs(tall), 0.5));
    });
    if (marked >= 0) {
      context.strokeStyle = style.getPropertyValue("--mark");
      context.lineWidth = 2;
      context.strokeRect(LEFT + marked * cell - 0.5, 1, Math.max(cell, 3), height - 2);
    }
    canvas.dataset.cell = cell;
  }

  let marked = -1;
  function go(place, x, y) {
    const { q, k, products, stored } = current;
    if (!(place >= 0 && place < stored.width)) { marked = -1; paint(-1); return page.tip.hide(); }
    marked = place;
    paint(place);
    const n = order[place];
    page.tip.show(x, y, [`dimension ${n}`, `${stored.names[0]} ${signed(q[n])}`, `${stored.names[1]} ${signed(k[n])}`], `product ${signed(products[n])}`);
  }
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    go(Math.floor((event.clientX - box.left - LEFT) / Number(canvas.dataset.cell)), event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", () => go(-1));
  canvas.addEventListener("blur", () => go(-1));
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return page.pin(null);
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const box = canvas.getBoundingClientRect(), place = clamp(marked + step, 0, current.stored.width - 1);
    go(place, box.left + LEFT + (place + 1) * Number(canvas.dataset.cell), box.top + ROW);
  });
  return { section, draw };
}
