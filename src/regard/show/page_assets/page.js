
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const rows = data.rows.length - 1, columns = data.columns.length - 1, heads = data.names.length;
  const views = data.views.map((view) => ({ ...view, cells: floats(view.cells) }));
  const root = document.documentElement;
  const ratio = () => window.devicePixelRatio || 1;
  const blank = views[0].cells.includes(-Infinity);
  const state = { head: 0, view: 0, own: false, at: null };

  function floats(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Float32Array(bytes.buffer);
  }

  // All text enters the page here, as text.
  function make(tag, parent, text, name) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (name) element.className = name;
    parent.append(element);
    return element;
  }

  function color(fraction) {
    const place = Math.min(Math.max(fraction, 0), 1) * (data.ramp.length - 1);
    const step = Math.min(Math.floor(place), data.ramp.length - 2), part = place - step;
    return data.ramp[step].map((low, n) => Math.round(low + (data.ramp[step + 1][n] - low) * part));
  }
  const table = Array.from({ length: 256 }, (_, n) => color(n / 255));

  const weight = (head, row, column) => views[state.view].cells[(head * rows + row) * columns + column];

  function limits(head) {
    const [low, high, power] = views[state.view].limits;
    if (!state.own) return { low, high, power };
    const start = head * rows * columns;
    let least = Infinity, most = -Infinity;
    for (let n = start; n < start + rows * columns; n++) {
      const value = views[state.view].cells[n];
      if (!Number.isFinite(value)) continue;
      least = Math.min(least, value);
      most = Math.max(most, value);
    }
    if (!(most > -Infinity)) return { low: 0, high: 1, power };
    if (least >= 0) least = 0;
    return { low: least, high: most > least ? most : least + 1, power };
  }

  // One dot for the largest of `step` × `step` cells; the hidden ones stay clear, so that the page shows through.
  function image(head, scale, step) {
    const wide = Math.max(Math.ceil(columns / step), 1), high = Math.max(Math.ceil(rows / step), 1);
    const largest = new Float32Array(wide * high).fill(-Infinity), cells = views[state.view].cells;
    for (let row = 0, n = head * rows * columns; row < rows; row++) {
      for (let column = 0; column < columns; column++, n++) {
        const dot = Math.floor(row / step) * wide + Math.floor(column / step);
        if (cells[n] > largest[dot] || Number.isNaN(cells[n])) largest[dot] = cells[n];
      }
    }
    const picture = new ImageData(wide, high);
    largest.forEach((value, dot) => {
      if (value === -Infinity) return;
      const share = Math.min(Math.max((value - scale.low) / (scale.high - scale.low), 0), 1);
      const known = !Number.isNaN(value);
      const [red, green, blue] = known ? table[Math.round(Math.pow(share, scale.power) * 255)] : [230, 0, 120];
      picture.data.set([red, green, blue, 255], 4 * dot);
    });
    const canvas = document.createElement("canvas");
    canvas.width = wide;
    canvas.height = high;
    canvas.getContext("2d").putImageData(picture, 0, 0);
    return canvas;
  }

  let kept = { of: "", canvas: null };
  function current(scale) {
    const of = [state.head, state.view, state.own].join();
    if (kept.of !== of) kept = { of, canvas: image(state.head, scale, 1) };
    return kept.canvas;
  }

  const number = (value) => Number.isFinite(value) ? String(Number(value.toPrecision(3))) : String(value);
  const exact = (value) => Number.isFinite(value) ? (value === 0 ? "0" : value.toPrecision(6)) : String(value);

  if (data.title) make("h1", document.body, data.title);
  const bar = make("div", document.body, undefined, "bar");
  let choice = null;
  if (heads > 1) {
    const label = make("label", bar, "head ");
    choice = make("select", label);
    data.names.forEach((name, n) => { make("option", choice, name).value = n; });
    choice.addEventListener("change", () => choose(Number(choice.value)));
  }
  if (views.length > 1) {
    const label = make("label", bar, "cells ");
    const select = make("select", label);
    views.forEach((view, n) => { make("option", select, view.name).value = n; });
    select.addEventListener("change", () => { state.view = Number(select.value); thumbnails(); draw(); });
  }
  if (heads > 1) {
    const label = make("label", bar, "colors ");
    const select = make("select", label);
    make("option", select, "one scale for all heads").value = "all";
    make("option", select, "scale of this head").value = "own";
    select.addEventListener("change", () => { state.own = select.value === "own"; thumbnails(); draw(); });
  }
  const shade = make("button", bar, "light / dark");
  shade.type = "button";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  root.classList.toggle("dark", dark.matches);
  shade.addEventListener("click", () => { root.classList.toggle("dark"); draw(); });

  const strip = heads > 1 ? make("div", document.body, undefined, "heads") : null;
  const buttons = data.names.map((name, n) => {
    if (!strip) return null;
    const button = make("button", strip);
    button.type = "button";
    button.append(document.createElement("canvas"));
    make("span", button, name);
    button.addEventListener("click", () => choose(n));
    return button;
  });
  const frame = make("div", document.body, undefined, "map");
  const map = make("canvas", frame);
  map.tabIndex = 0;
  map.setAttribute("role", "img");
  map.setAttribute("aria-label", "Heatmap of attention weights; arrow keys move from cell to cell");
  const legend = make("div", document.body, undefined, "scale");
  const low = make("span", legend), ramp = make("canvas", legend), high = make("span", legend), bend = make("span", legend);
  const key = make("span", legend, undefined, "hidden-key"), word = make("span", legend, "hidden");
  const note = make("p", document.body, undefined, "note");
  const tip = make("div", document.body, undefined, "tip");
  tip.setAttribute("role", "status");
  tip.hidden = true;

  function choose(head) {
    state.head = head;
    if (choice) choice.value = head;
    draw();
  }

  function thumbnails() {
    buttons.forEach((button, n) => {
      if (!button) return;
      const canvas = button.firstChild, small = image(n, limits(n), Math.ceil(Math.max(rows, columns) / 112));
      canvas.width = canvas.height = 112;
      const context = canvas.getContext("2d");
      context.imageSmoothingEnabled = false;
      context.drawImage(small, 0, 0, 112, 112);
    });
  }

  const label = (tokens, starts, n) => tokens && data.exact ? tokens[n] : tokens && starts[n + 1] - starts[n] === 1 ? tokens[starts[n]] : String(starts[n]);
  const short = (text, most) => { const letters = Array.from(text); return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : text; };
  let place = { left: 0, top: 0, wide: 1, high: 1 };

  function draw() {
    const scale = limits(state.head), style = getComputedStyle(root), font = "system-ui, sans-serif";
    const ink = style.getPropertyValue("--ink"), soft = style.getPropertyValue("--soft");
    const context = map.getContext("2d");
    context.font = `12px ${font}`;
    const rowLabels = Array.from({ length: rows }, (_, n) => short(label(data.queryTokens, data.rows, n), 18));
    const columnLabels = Array.from({ length: columns }, (_, n) => short(label(data.keyTokens, data.columns, n), 18));
    const widest = (labels) => labels.slice(0, 2000).reduce((most, text) => Math.max(most, context.measureText(text).width), 0);
    const left = Math.ceil(widest(rowLabels)) + 30, top = Math.ceil(widest(columnLabels) * 0.87) + 34;
    const room = Math.max(document.body.clientWidth - 40 - left - Math.min(top, 90), 200);
    const tall = Math.max(window.innerHeight - top - (strip ? 330 : 160), 320);
    const fit = Math.min(room / Math.max(columns, 1), Math.max(tall / Math.max(rows, 1), Math.min(room / Math.max(columns, 1), 16)));
    const side = Math.max(Math.min(fit, 36), 1);  // never less than a dot: a strong weight must not fall between two
    const wide = columns * side, deep = rows * side;
    place = { left, top, wide: side, high: side };
    map.width = Math.ceil((left + wide + Math.min(top, 90)) * ratio());
    map.height = Math.ceil((top + deep + 8) * ratio());
    map.style.width = `${map.width / ratio()}px`;
    map.style.height = `${map.height / ratio()}px`;
    context.setTransform(ratio(), 0, 0, ratio(), 0, 0);
    context.fillStyle = style.getPropertyValue("--hidden");
    context.fillRect(left, top, wide, deep);
    context.imageSmoothingEnabled = false;
    if (rows && columns) context.drawImage(current(scale), left, top, wide, deep);
    context.font = `${Math.min(12, Math.max(side * 0.85, 9))}px ${font}`;
    const every = Math.max(1, Math.ceil(11 / side));
    context.textBaseline = "middle";
    for (let n = 0; n < rows; n += every) {
      context.fillStyle = state.at && state.at.row === n ? style.getPropertyValue("--mark") : ink;
      context.textAlign = "right";
      context.fillText(rowLabels[n], left - 6, top + (n + 0.5) * side);
    }
    for (let n = 0; n < columns; n += every) {
      context.save();
      context.translate(left + (n + 0.5) * side, top - 5);
      context.rotate(-Math.PI / 3);
      context.fillStyle = state.at && state.at.column === n ? style.getPropertyValue("--mark") : ink;
      context.textAlign = "left";
      context.fillText(columnLabels[n], 0, 0);
      context.restore();
    }
    context.fillStyle = soft;
    context.font = `11px ${font}`;
    context.textAlign = "left";
    context.fillText("keys →", left, 8);
    context.save();
    context.translate(8, top);
    context.rotate(-Math.PI / 2);
    context.textAlign = "right";
    context.fillText("← queries", 0, 0);
    context.restore();
    if (state.at) {
      context.strokeStyle = style.getPropertyValue("--mark");
      context.lineWidth = 2;
      context.strokeRect(left + state.at.column * side, top + state.at.row * side, side, side);
    }
    buttons.forEach((button, n) => { if (button) button.setAttribute("aria-pressed", String(n === state.head)); });
    low.textContent = number(scale.low);
    high.textContent = number(scale.high);
    bend.textContent = scale.power === 1 ? "" : "square root scale";
    key.hidden = word.hidden = !blank;
    note.textContent = views[state.view].note + ". Hover or use the arrow keys for exact numbers.";
    ramp.width = 180;
    ramp.height = 12;
    const strokes = ramp.getContext("2d");
    for (let n = 0; n < 180; n++) {
      strokes.fillStyle = `rgb(${table[Math.round((n / 179) * 255)].join(",")})`;
      strokes.fillRect(n, 0, 1, 12);
    }
  }

  function name(what, tokens, starts, n) {
    const first = starts[n], last = starts[n + 1] - 1;
    if (first === last) return `${what} ${first}` + (tokens ? `: ${tokens[first]}` : "");
    const some = tokens ? ": " + tokens.slice(first, Math.min(last + 1, first + 8)).join(" ") + (last - first >= 8 ? " …" : "") : "";
    return `${what} ${first} to ${last}${some}`;
  }

  function tell(x, y) {
    const value = weight(state.head, state.at.row, state.at.column);
    tip.replaceChildren();
    make("div", tip, name("query", data.queryTokens, data.rows, state.at.row));
    make("div", tip, name("key", data.keyTokens, data.columns, state.at.column));
    make("div", tip, value === -Infinity ? "hidden" : `${views[state.view].name} ${exact(value)}`, "weight");
    tip.hidden = false;
    tip.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 14, window.innerHeight - tip.offsetHeight - 8))}px`;
  }

  function move(row, column, x, y) {
    if (!(row >= 0 && row < rows && column >= 0 && column < columns)) return leave();
    if (!state.at || state.at.row !== row || state.at.column !== column) {
      state.at = { row, column };
      draw();
    }
    tell(x, y);
  }

  function leave() {
    tip.hidden = true;
    if (state.at) { state.at = null; draw(); }
  }

  map.addEventListener("pointermove", (event) => {
    const box = map.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - place.top) / place.high);
    const column = Math.floor((event.clientX - box.left - place.left) / place.wide);
    move(row, column, event.clientX, event.clientY);
  });
  map.addEventListener("pointerleave", leave);
  map.addEventListener("blur", leave);
  map.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Escape") return leave();
    if (!step || !rows || !columns) return;
    event.preventDefault();
    const at = state.at || { row: 0, column: 0 };
    const row = state.at ? Math.min(Math.max(at.row + step[0], 0), rows - 1) : 0;
    const column = state.at ? Math.min(Math.max(at.column + step[1], 0), columns - 1) : 0;
    const box = map.getBoundingClientRect();
    move(row, column, box.left + place.left + (column + 1) * place.wide, box.top + place.top + (row + 1) * place.high);
  });
  window.addEventListener("resize", draw);
  dark.addEventListener("change", () => { root.classList.toggle("dark", dark.matches); draw(); });
  thumbnails();
  draw();
})();
