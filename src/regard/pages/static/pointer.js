// What the pointer and the arrow keys are on.

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
