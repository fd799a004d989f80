// The parts of the page; all text enters it here, as text.

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
