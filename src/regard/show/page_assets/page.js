
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement, font = "system-ui, sans-serif";
  const ratio = () => window.devicePixelRatio || 1;
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  // --- what is shown: layers of cells, as tokens or merged into words ---

  function floats(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Float32Array(bytes.buffer);
  }

  function axis(starts, text) {
    const tokens = text === null ? null : data.texts[text].tokens;
    const one = (n) => starts[n + 1] - starts[n] === 1;
    return {
      count: starts.length - 1,
      label: (n) => tokens && one(n) ? tokens[starts[n]] : String(starts[n]),
      place: (n) => one(n) ? String(starts[n]) : `${starts[n]} to ${starts[n + 1] - 1}`,
      text: (n) => !tokens ? "" : tokens.slice(starts[n], Math.min(starts[n + 1], starts[n] + 8)).join(" ") + (starts[n + 1] - starts[n] > 8 ? " …" : ""),
    };
  }

  const asTokens = data.layers.map((layer) => layer.refused ? layer : {
    ...layer, cells: layer.cells.map(floats), down: axis(layer.rows, layer.queries), across: axis(layer.columns, layer.keys),
  });

  const hasWords = (text) => text !== null && data.texts[text].words !== null;
  const mergeable = (layer) => !layer.refused && layer.exact && (hasWords(layer.queries) || hasWords(layer.keys));

  function wordAxis(text, count) {
    if (!hasWords(text)) return { starts: Array.from({ length: count + 1 }, (_, n) => n), axis: null };
    const { starts, words } = data.texts[text];
    const place = (n) => starts[n + 1] - starts[n] === 1 ? String(starts[n]) : `${starts[n]} to ${starts[n + 1] - 1}`;
    return { starts, axis: { count: words.length, label: (n) => words[n], place, text: (n) => words[n] } };
  }

  // From word to word: the sum over the key's tokens, the mean over the query's; hidden where all pairs are.
  function merged(layer) {
    if (!mergeable(layer)) return layer;
    const rows = layer.down.count, columns = layer.across.count;
    const down = wordAxis(layer.queries, rows), across = wordAxis(layer.keys, columns);
    const high = down.starts.length - 1, wide = across.starts.length - 1;
    const cells = layer.cells.map((from) => {
      const to = new Float32Array(layer.heads.length * high * wide).fill(-Infinity);
      for (let head = 0; head < layer.heads.length; head++) {
        for (let i = 0; i < high; i++) for (let j = 0; j < wide; j++) {
          let sum = 0, seen = false;
          for (let row = down.starts[i]; row < down.starts[i + 1]; row++) {
            for (let column = across.starts[j]; column < across.starts[j + 1]; column++) {
              const value = from[(head * rows + row) * columns + column];
              if (value !== -Infinity) { sum += value; seen = true; }
            }
          }
          if (seen) to[(head * high + i) * wide + j] = sum / (down.starts[i + 1] - down.starts[i]);
        }
      }
      return to;
    });
    return { ...layer, cells, down: down.axis || layer.down, across: across.axis || layer.across, words: true };
  }

  let asWords = null;
  const layers = () => state.words ? (asWords = asWords || asTokens.map(merged)) : asTokens;
  const shown = asTokens.map((_, n) => n).filter((n) => !asTokens[n].refused);
  const state = { layer: shown[0] ?? 0, head: 0, view: 0, own: false, words: false, at: null };
  const current = () => layers()[state.layer];

  // --- colors ---

  function color(fraction) {
    const place = clamp(fraction, 0, 1) * (data.ramp.length - 1);
    const step = Math.min(Math.floor(place), data.ramp.length - 2), part = place - step;
    return data.ramp[step].map((low, n) => Math.round(low + (data.ramp[step + 1][n] - low) * part));
  }
  const table = Array.from({ length: 256 }, (_, n) => color(n / 255));

  function range(cells, start, stop, power) {
    let low = Infinity, high = -Infinity;
    for (let n = start; n < stop; n++) {
      if (!Number.isFinite(cells[n])) continue;
      low = Math.min(low, cells[n]);
      high = Math.max(high, cells[n]);
    }
    if (!(high > -Infinity)) return { low: 0, high: 1, power };
    if (low >= 0) low = 0;
    return { low, high: high > low ? high : low + 1, power };
  }

  let ofWords = {};
  function limits(layer, head) {
    const [low, high, power] = data.views[state.view].limits;
    const size = layer.down.count * layer.across.count;
    if (state.own) return range(layer.cells[state.view], head * size, (head + 1) * size, power);
    if (!state.words) return { low, high, power };
    return ofWords[state.view] = ofWords[state.view] || shown.map((n) => layers()[n])
      .map((each) => range(each.cells[state.view], 0, each.cells[state.view].length, power))
      .reduce((one, other) => ({ low: Math.min(one.low, other.low), high: Math.max(one.high, other.high), power }));
  }

  // One dot for the largest of `step` × `step` cells; the hidden ones stay clear, so that the page shows through.
  function image(layer, head, step) {
    const scale = limits(layer, head), rows = layer.down.count, columns = layer.across.count;
    const wide = Math.max(Math.ceil(columns / step), 1), high = Math.max(Math.ceil(rows / step), 1);
    const largest = new Float32Array(wide * high).fill(-Infinity), cells = layer.cells[state.view];
    for (let row = 0, n = head * rows * columns; row < rows; row++) {
      for (let column = 0; column < columns; column++, n++) {
        const dot = Math.floor(row / step) * wide + Math.floor(column / step);
        if (cells[n] > largest[dot] || Number.isNaN(cells[n])) largest[dot] = cells[n];
      }
    }
    const picture = new ImageData(wide, high);
    largest.forEach((value, dot) => {
      if (value === -Infinity) return;
      const share = clamp((value - scale.low) / (scale.high - scale.low), 0, 1);
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

  // --- the page; all text enters it here, as text ---

  function make(tag, parent, text, name) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (name) element.className = name;
    parent.append(element);
    return element;
  }

  function chooser(label, options, changed) {
    const select = make("select", make("label", bar, label));
    select.name = label;
    options.forEach(([value, text, off]) => {
      const option = make("option", select, text);
      option.value = value;
      option.disabled = Boolean(off);
    });
    select.addEventListener("change", () => changed(select.value));
    return select;
  }

  if (data.title) make("h1", document.body, data.title);
  const bar = make("div", document.body, undefined, "bar");
  const layered = data.layers.length > 1;
  const several = data.layers.some((layer) => layer.heads.length > 1) || layered;
  const layerChoice = layered ? chooser("layer", data.layers.map((layer, n) => [n, layer.name, layer.refused]), (value) => choose(Number(value), state.head)) : null;
  const headChoice = several ? chooser("head", [], (value) => choose(state.layer, Number(value))) : null;
  if (data.views.length > 1) chooser("cells", data.views.map((view, n) => [n, view.name]), (value) => { state.view = Number(value); redraw(); });
  if (several) chooser("colors", [["all", "one scale for all"], ["own", "scale of each head"]], (value) => { state.own = value === "own"; redraw(); });
  if (data.texts.some((text) => text.words !== null)) {
    const label = make("label", bar), box = make("input", label);
    make("span", label, "words");
    box.type = "checkbox";
    box.disabled = !asTokens.some(mergeable);
    label.title = box.disabled ? "words need a cell for every token; the cells of this page hold several"
      : "sub-words merged: the sum over the tokens of a key, the mean over those of a query";
    box.addEventListener("change", () => { state.words = box.checked; state.at = null; tip.hidden = true; redraw(); });
  }
  const shade = make("button", bar, "light / dark");
  shade.type = "button";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  root.classList.toggle("dark", dark.matches);
  shade.addEventListener("click", () => { root.classList.toggle("dark"); draw(); });

  const body = make("div", document.body, undefined, layered ? "body layered" : "body");
  const side = several ? make("div", body, undefined, "side") : null;
  const picker = side ? make("div", side, undefined, layered ? "picker" : "picker flow") : null;
  if (picker) {
    picker.setAttribute("role", "group");
    picker.setAttribute("aria-label", "Heads; arrow keys move from one to the next");
  }
  const buttons = data.layers.map((layer, n) => {
    if (!picker) return [];
    const row = layered ? make("div", picker, undefined, "layer") : picker;
    if (layered) make("span", row, layer.name.split(" ")[0], "name").title = layer.name;
    if (layer.refused) make("span", row, `refused: ${layer.refused}`, "refused").title = layer.refused;
    return layer.heads.map((name, head) => {
      const button = make("button", row);
      button.type = "button";
      button.append(document.createElement("canvas"));
      button.setAttribute("aria-label", layered ? `layer ${layer.name}, head ${name}` : `head ${name}`);
      if (layered) button.title = `layer ${layer.name}, head ${name}`; else make("span", button, name);
      button.addEventListener("click", () => choose(n, head));
      return button;
    });
  });
  const main = make("div", body, undefined, "main");
  const frame = make("div", main, undefined, "map");
  const map = make("canvas", frame);
  map.tabIndex = 0;
  map.setAttribute("role", "img");
  map.setAttribute("aria-label", "Heatmap of attention weights; arrow keys move from cell to cell");
  const legend = make("div", main, undefined, "scale");
  const low = make("span", legend), ramp = make("canvas", legend), high = make("span", legend), bend = make("span", legend);
  const key = make("span", legend, undefined, "hidden-key"), word = make("span", legend, "hidden");
  const note = make("p", main, undefined, "note");
  const tip = make("div", document.body, undefined, "tip");
  tip.setAttribute("role", "status");
  tip.hidden = true;
  ramp.width = 180;
  ramp.height = 12;
  for (let n = 0; n < 180; n++) {
    const strokes = ramp.getContext("2d");
    strokes.fillStyle = `rgb(${table[Math.round((n / 179) * 255)].join(",")})`;
    strokes.fillRect(n, 0, 1, 12);
  }

  let filled = -1;
  function choose(layer, head, focused) {
    if (!data.layers[layer] || data.layers[layer].refused) return;
    const size = (n) => data.layers[n].rows.length * 65537 + data.layers[n].columns.length;
    if (size(layer) !== size(state.layer)) state.at = null;
    state.layer = layer;
    state.head = clamp(head, 0, data.layers[layer].heads.length - 1);
    draw();
    const chosen = buttons[layer] && buttons[layer][state.head];
    if (chosen && focused) chosen.focus();
    if (chosen && picker.contains(chosen)) chosen.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  // In the picker: left and right between heads, up and down between layers (or rows of heads).
  if (picker) picker.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    if (step[0] && !layered) return;
    const place = shown.indexOf(state.layer) + step[0];
    choose(shown[clamp(place, 0, shown.length - 1)], state.head + step[1], true);
  });

  const THUMBNAIL = 104;
  const most = data.layers.reduce((count, layer) => Math.max(count, layer.heads.length), 1);
  function thumbnails() {
    // all heads of a layer side by side where they can still be told apart
    const room = (window.innerWidth >= 1000 ? 0.44 * window.innerWidth : document.body.clientWidth) - 60;
    const size = layered ? `${clamp(Math.floor(room / most) - 5, 20, 36)}px` : "";
    buttons.forEach((row, n) => row.forEach((button, head) => {
      const layer = layers()[n], longest = Math.max(layer.down.count, layer.across.count, 1);
      const small = image(layer, head, Math.ceil(longest / THUMBNAIL)), canvas = button.firstChild;
      canvas.style.width = canvas.style.height = size;
      canvas.width = canvas.height = THUMBNAIL;
      const context = canvas.getContext("2d");
      context.imageSmoothingEnabled = false;
      const wide = THUMBNAIL * Math.max(layer.across.count / longest, 0.25), tall = THUMBNAIL * Math.max(layer.down.count / longest, 0.25);
      context.drawImage(small, (THUMBNAIL - wide) / 2, (THUMBNAIL - tall) / 2, wide, tall);
    }));
  }

  // --- the map ---

  const number = (value) => Number.isFinite(value) ? String(Number(value.toPrecision(3))) : String(value);
  const exact = (value) => Number.isFinite(value) ? (value === 0 ? "0" : value.toPrecision(6)) : String(value);
  const short = (text, most) => { const letters = Array.from(text); return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : text; };

  // Labels of an axis, and the room they take; kept, because the map is drawn at every step of the pointer.
  function labels(axis) {
    if (axis.labels) return axis;
    const context = map.getContext("2d");
    context.font = `12px ${font}`;
    const widest = (texts) => Math.ceil(texts.reduce((most, text) => Math.max(most, context.measureText(text).width), 0));
    axis.labels = Array.from({ length: axis.count }, (_, n) => short(axis.label(n), 18));
    axis.room = widest(axis.labels.slice(0, 2000));
    axis.beyond = widest(axis.labels.slice(-3));
    return axis;
  }

  let place = { left: 0, top: 0, side: 1 };
  let kept = { of: "", canvas: null };

  function redraw() { kept.of = ""; thumbnails(); draw(); }

  function draw() {
    const layer = current();
    if (!layer || layer.refused) { note.textContent = "No layer can be shown."; return; }
    const rows = layer.down.count, columns = layer.across.count, scale = limits(layer, state.head);
    const style = getComputedStyle(root), ink = style.getPropertyValue("--ink"), mark = style.getPropertyValue("--mark");
    const context = map.getContext("2d"), down = labels(layer.down), across = labels(layer.across);
    const left = down.room + 30, top = Math.ceil(across.room * 0.87) + 34, beyond = Math.min(across.beyond / 2 + 6, 90);
    const room = Math.max(main.clientWidth - left - beyond, 120) / Math.max(columns, 1);
    const tall = Math.max(window.innerHeight - map.getBoundingClientRect().top - window.scrollY - top - 90, 240) / Math.max(rows, 1);
    // as large as the window allows; tokens stay readable, and never less than a dot: a strong weight must not be lost
    const least = layer.exact && Math.max(rows, columns) <= 128 ? 10.5 : 1;
    const side = clamp(Math.min(room, Math.max(tall, Math.min(room, 14))), least, 36);
    const wide = columns * side, deep = rows * side;
    place = { left, top, side };
    Object.assign(map.dataset, place);
    map.width = Math.ceil((left + wide + beyond) * ratio());
    map.height = Math.ceil((top + deep + 8) * ratio());
    map.style.width = `${map.width / ratio()}px`;
    map.style.height = `${map.height / ratio()}px`;
    context.setTransform(ratio(), 0, 0, ratio(), 0, 0);
    context.fillStyle = style.getPropertyValue("--hidden");
    context.fillRect(left, top, wide, deep);
    context.imageSmoothingEnabled = false;
    const of = [state.layer, state.head, state.view, state.own, state.words].join();
    if (kept.of !== of) kept = { of, canvas: image(layer, state.head, 1) };
    if (rows && columns) context.drawImage(kept.canvas, left, top, wide, deep);
    context.font = `${clamp(side * 0.85, 9, 12)}px ${font}`;
    const every = Math.max(1, Math.ceil(10.5 / side));
    context.textBaseline = "middle";
    context.textAlign = "right";
    const write = (n, at) => n % every === 0 && !(state.at && Math.abs(n - at) * side < 10) || (state.at && n === at);
    for (let n = 0; n < rows; n++) {
      if (!write(n, state.at && state.at.row)) continue;
      context.fillStyle = state.at && state.at.row === n ? mark : ink;
      context.fillText(down.labels[n], left - 6, top + (n + 0.5) * side);
    }
    context.textAlign = "left";
    for (let n = 0; n < columns; n++) {
      if (!write(n, state.at && state.at.column)) continue;
      context.save();
      context.translate(left + (n + 0.5) * side, top - 5);
      context.rotate(-Math.PI / 3);
      context.fillStyle = state.at && state.at.column === n ? mark : ink;
      context.fillText(across.labels[n], 0, 0);
      context.restore();
    }
    context.fillStyle = style.getPropertyValue("--soft");
    context.font = `11px ${font}`;
    context.fillText("keys →", left, 8);
    context.save();
    context.translate(8, top);
    context.rotate(-Math.PI / 2);
    context.textAlign = "right";
    context.fillText("← queries", 0, 0);
    context.restore();
    if (state.at) {
      context.strokeStyle = mark;
      context.lineWidth = 2;
      context.strokeRect(left + state.at.column * side, top + state.at.row * side, side, side);
    }
    tell_choice(layer, scale);
  }

  function tell_choice(layer, scale) {
    if (layerChoice) layerChoice.value = state.layer;
    if (headChoice && filled !== state.layer) {
      filled = state.layer;
      headChoice.replaceChildren();
      layer.heads.forEach((name, n) => { make("option", headChoice, name).value = n; });
    }
    if (headChoice) headChoice.value = state.head;
    buttons.forEach((row, n) => row.forEach((button, head) => {
      const chosen = n === state.layer && head === state.head;
      button.setAttribute("aria-pressed", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
    }));
    low.textContent = number(scale.low);
    high.textContent = number(scale.high);
    bend.textContent = scale.power === 1 ? "" : "square root scale";
    key.hidden = word.hidden = !layer.cells[state.view].includes(-Infinity);
    const as = layer.words ? " Between words: the sum over the tokens of a key, the mean over those of a query." : "";
    note.textContent = `${layer.notes[state.view]}.${as} Hover or use the arrow keys for exact numbers.`;
  }

  function tell(x, y) {
    const layer = current(), { row, column } = state.at;
    const value = layer.cells[state.view][(state.head * layer.down.count + row) * layer.across.count + column];
    tip.replaceChildren();
    [["query", layer.down, row], ["key", layer.across, column]].forEach(([what, axis, n]) => {
      const text = axis.text(n), line = make("div", tip, `${what} ${axis.place(n)}${text ? ": " : ""}`);
      if (text) make("bdi", line, text);
    });
    const name = layer.words ? "weight between words" : data.views[state.view].name;
    make("div", tip, value === -Infinity ? "hidden" : `${name} ${exact(value)}`, "weight");
    tip.hidden = false;
    const right = x + 14 + tip.offsetWidth <= window.innerWidth - 8, below = y + 14 + tip.offsetHeight <= window.innerHeight - 8;
    tip.style.left = `${Math.max(4, right ? x + 14 : x - 14 - tip.offsetWidth)}px`;
    tip.style.top = `${Math.max(4, below ? y + 14 : y - 14 - tip.offsetHeight)}px`;
  }

  function move(row, column, x, y) {
    const layer = current();
    if (!layer || layer.refused || !(row >= 0 && row < layer.down.count && column >= 0 && column < layer.across.count)) return leave();
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

  const follow = (event) => {
    const box = map.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - place.top) / place.side);
    const column = Math.floor((event.clientX - box.left - place.left) / place.side);
    move(row, column, event.clientX, event.clientY);
  };
  map.addEventListener("pointermove", follow);
  map.addEventListener("pointerdown", follow);
  map.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") leave(); });
  map.addEventListener("blur", leave);
  map.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const layer = current();
    if (event.key === "Escape") return leave();
    if (!step || !layer || layer.refused || !layer.down.count || !layer.across.count) return;
    event.preventDefault();
    const row = state.at ? clamp(state.at.row + step[0], 0, layer.down.count - 1) : 0;
    const column = state.at ? clamp(state.at.column + step[1], 0, layer.across.count - 1) : 0;
    const left = place.left + column * place.side;
    if (left + place.side > frame.scrollLeft + frame.clientWidth || left < frame.scrollLeft) frame.scrollLeft = left - frame.clientWidth / 2;
    let box = map.getBoundingClientRect();
    const y = box.top + place.top + (row + 1) * place.side;
    if (y > window.innerHeight || y < place.side) window.scrollBy(0, y - window.innerHeight / 2);
    box = map.getBoundingClientRect();
    move(row, column, box.left + left + place.side, box.top + place.top + (row + 1) * place.side);
  });
  window.addEventListener("resize", draw);
  dark.addEventListener("change", () => { root.classList.toggle("dark", dark.matches); draw(); });
  thumbnails();
  choose(state.layer, 0);
  draw();
})();
