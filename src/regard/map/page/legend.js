// What a dot means, what a color means, and the switches that change either.

import { make, segmented } from "./shared/dom.js";
import { multiple, position, signedMultiple } from "./shared/format.js";
import { signedFraction } from "./palette.js";
import { RAMPS } from "./shared/colors.js";
import { sideOf } from "./geometry.js";
import { widthOf } from "./scene.js";

const MULTIPLE = "Colors are multiples of uniform: a weight times the number of keys that its query sees. 1× is what every key would get if all got the same.";
const SIGNED = "Colors are differences in multiples of uniform: the weight of A less that of B, times the number of keys that the query sees in either.";
const BAR = 260; // CSS pixels
const DECADE = Math.log2(10);

export class Legend {
  constructor(app, parent) {
    this.app = app;
    this.root = make("footer", parent, { name: "legend" });
    const words = make("div", this.root, { name: "words" });
    this.meaning = make("p", words, { name: "meaning" });
    const key = make("p", words, { name: "soft key" });
    this.unit = make("span", key);
    this.more = [["A", "above", "more"], ["B", "under", "more"]].map(([head, name, text]) => this.entry(key, `swatch ${name}`, `${head} ${text}`, `${head} gives the key more weight than the other head`));
    this.entry(key, "swatch hidden-pair", "hidden", "Gray: the query does not see the key, for example because it comes later in the text");
    this.estimated = this.entry(key, "swatch hatch", "estimate", "Hatched: estimated from a sample of rows; exact values follow");
    const scale = make("div", this.root, { name: "scale" });
    this.bar = make("canvas", scale, { role: "img" });
    this.slider = make("input", scale, { type: "range", min: "0", max: "1", step: "0.005", "aria-label": "Hide weights below" });
    this.ticks = make("div", scale, { name: "ticks", "aria-hidden": "true" });
    this.slider.addEventListener("input", () => {
      const part = Number(this.slider.value), palette = app.look.palette(), value = valueAt(palette, part);
      app.state.set({ threshold: part <= Number(this.slider.min) ? null : palette.signed ? Math.log2(value) : value });
    });
    const switches = make("div", this.root, { name: "switches" });
    const statistics = [
      { value: "max", text: "Largest", title: "Each dot is the largest of its weights (m)" },
      { value: "mean", text: "Mean", title: "Each dot is the mean of its weights (m)" },
    ];
    const scales = [
      { value: "log", text: "Log", title: "Colors follow the logarithm (l)" },
      { value: "linear", text: "Linear", title: "Colors follow the weight; full color is the largest in view (l)" },
    ];
    this.pressStatistic = segmented(switches, "Each dot shows", statistics, (statistic) => app.state.set({ statistic }));
    this.pressScale = segmented(switches, "Color scale", scales, (scale) => app.state.set({ scale }));
    this.ramp = make("select", switches, { "aria-label": "Colors", title: "Colors (c)" });
    for (const name of Object.keys(RAMPS)) make("option", this.ramp, { text: name, value: name });
    this.ramp.addEventListener("change", () => app.state.set({ ramp: this.ramp.value }));
    this.drawn = null;
  }

  entry(parent, name, text, title) {
    const entry = make("span", parent, { title });
    make("span", entry, { name, "aria-hidden": "true" });
    make("span", entry, { text });
    return entry;
  }

  // "each dot = the largest of 16 × 16 weights"
  says() {
    const { app } = this, layer = app.layer(), side = sideOf(layer, app.plot.level(layer));
    const pixels = app.view.scale * side, across = app.state.get("statistic") === "max" ? "the largest" : "the mean";
    const { difference } = app.compare, one = difference ? "difference" : "weight";
    if (side === 1) return `1 square = 1 ${one}, ${wide(pixels)} wide`;
    return `1 dot = ${position(side)} × ${position(side)} ${one}s, ${across}${difference && across === "the largest" ? " by size" : ""} shown`;
  }

  draw(palette, theme) {
    const { app } = this, text = this.says(), { state } = app, { signed } = palette;
    if (this.meaning.textContent !== text) this.meaning.textContent = text;
    this.estimated.hidden = !app.notice.estimate;
    const of = [palette, theme, app.plot.ratio, app.layout.width, app.range.exceeded];
    if (this.drawn && of.every((each, n) => each === this.drawn[n])) return;
    this.drawn = of;
    this.unit.textContent = signed ? "A − B; 1× = uniform over the visible keys" : "1× = uniform over the visible keys";
    this.unit.title = signed ? SIGNED : MULTIPLE;
    this.more.forEach((entry, n) => {
      entry.hidden = !signed;
      entry.firstChild.style.backgroundColor = `rgb(${palette.stops[n ? 1 : palette.stops.length - 2].join(" ")})`;
    });
    this.ramp.disabled = signed;
    this.pressStatistic(state.get("statistic"));
    this.pressScale(state.get("scale"));
    this.ramp.value = palette.name;
    this.colors(palette, theme);
    const threshold = state.get("threshold");
    this.slider.min = signed ? "0.5" : "0";
    this.bar.parentElement.classList.toggle("signed", signed);
    this.slider.value = threshold === null ? this.slider.min : partOf(palette, signed ? 2 ** threshold : threshold);
    const said = threshold === null ? "nothing is hidden" : `${signed ? "differences of less than" : "below"} ${multiple(2 ** threshold)} uniform ${signed ? "are" : "is"} hidden`;
    this.slider.setAttribute("aria-valuetext", said);
    this.slider.title = `Threshold: ${said}`;
  }

  colors(palette, theme) {
    const ratio = this.app.plot.ratio, width = Math.round(BAR * ratio);
    this.bar.width = width;
    this.bar.height = 1;
    const context = this.bar.getContext("2d");
    for (let x = 0; x < width; x++) {
      const value = valueAt(palette, (x + 0.5) / width);
      context.fillStyle = palette.below(value) ? theme.paper : `rgb(${palette.color(value).join(" ")})`;
      context.fillRect(x, 0, 1, 1);
    }
    const marks = ticks(palette, this.bar.clientWidth || BAR);
    this.bar.setAttribute("aria-label", `Colors from ${marks[0].text} to ${marks[marks.length - 1].text} uniform`);
    this.ticks.replaceChildren();
    for (const { part, text } of marks) make("span", this.ticks, { text }).style.left = `${100 * part}%`;
    const beyond = this.app.range.exceeded;
    this.bar.parentElement.classList.toggle("beyond", beyond);
    this.ticks.title = `${palette.signed ? SIGNED : MULTIPLE}${beyond ? " Some weights are beyond the end of the colors and have the last one; press 0 for colors that reach them." : ""}`;
  }
}

// The value at a part of the bar, as `valueOf` gives it, and back.
export function valueAt({ scale: { low, high, linear, signed } }, part) {
  if (signed) {
    const size = Math.abs(2 * part - 1), most = 2 ** high;
    return Math.sign(2 * part - 1) * (linear ? size * most : 2 ** (low + size * (high - low)));
  }
  return linear ? Math.log2(Math.max(part, 1e-9)) + high : low + part * (high - low);
}

export function partOf({ scale }, value) {
  const { low, high, linear, signed } = scale;
  if (signed) return signedFraction(value, scale);
  return linear ? 2 ** (value - high) : (value - low) / (high - low);
}

const STEPS = [1, 2, DECADE, 2 * DECADE, 3 * DECADE, 6 * DECADE]; // between labels, in powers of two
const BETWEEN = 9; // CSS pixels

// Labels of the bar, in the finest steps that keep them apart: doubles for a nearly even head, thousands for others.
// `height`: of a label, where they stand one above the other.
export function ticks({ scale }, width = BAR, height = null) {
  const { low, high, linear, signed } = scale;
  if (signed) return signedTicks(scale, width, height);
  if (linear) return [0, 0.5, 1].map((part) => ({ part, text: multiple(part * 2 ** high), value: Math.log2(Math.max(part, 1e-9)) + high }));
  const found = STEPS.map((step) => inSteps(step, low, high));
  return found.find((marks) => apart(marks, width, height)) ?? found[found.length - 1];
}

// Both sides of 0 alike.
function signedTicks(scale, width, height) {
  const { low, high, linear } = scale, half = ticks({ scale: { low, high, linear } }, width / 2, height);
  const values = half.filter(({ part }) => part > (linear ? 0.4 : 0.2)).map(({ value }) => 2 ** value);
  const signs = [...values.map((value) => -value).reverse(), 0, ...values];
  return signs.map((value) => ({ part: signedFraction(value, scale), text: value ? signedMultiple(value) : "0", value }));
}

function inSteps(step, low, high) {
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n <= high / step + 1e-9; n++) {
    found.push({ part: (n * step - low) / (high - low), text: times(n * step), value: n * step });
  }
  return found;
}

function apart(marks, width, height) {
  const half = ({ text }) => (height === null ? widthOf(text, 11) : height - BETWEEN) / 2;
  return marks.every((mark, n) => !n || (mark.part - marks[n - 1].part) * width >= half(mark) + half(marks[n - 1]) + BETWEEN);
}

const times = (value) => (value < 0 ? `1/${position(2 ** -value)}×` : `${position(2 ** value)}×`);

function wide(pixels) {
  const told = pixels >= 9.5 ? Math.round(pixels) : Number(pixels.toPrecision(2));
  return `${told} ${told === 1 ? "pixel" : "pixels"}`;
}
