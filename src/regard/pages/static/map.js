// The map of the chosen head, with its labels.

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
