// How the page looks now: light or dark, and the colors of the weights.

import { Palette } from "./palette.js";

const COLORS = ["paper", "ink", "soft", "line", "hidden", "mark", "ground"];
const rgb = (text) => text.match(/\w\w/g).map((part) => parseInt(part, 16));

export class Look {
  constructor(app) {
    this.app = app;
    this.system = window.matchMedia("(prefers-color-scheme: dark)");
    this.again = () => { this.forget(); app.invalidate(); };
    this.system.addEventListener("change", this.again);
    this.forget();
  }

  forget() {
    this.found = null;
    this.palettes = new Map();
    this.of = "";
  }

  end() {
    this.system.removeEventListener("change", this.again);
  }

  // The colors of the stylesheet, for what is drawn on a canvas.
  theme() {
    if (this.found) return this.found;
    const { root, state } = this.app, chosen = state.get("theme"), dark = chosen === "auto" ? this.system.matches : chosen === "dark";
    root.dataset.theme = dark ? "dark" : "light";
    const style = getComputedStyle(root), colors = COLORS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]);
    return (this.found = { ...Object.fromEntries(colors), dark });
  }

  // For the bytes of single heads, while a difference is shown: on the scale that they had last.
  plain(layer) {
    const { app } = this, theme = this.theme(), { ramp } = app.state.values, { hi } = app.info.layers[layer];
    if (!app.coding().signed) return this.palette(layer);
    const key = `plain ${hi}`, ends = this.ends ?? { low: -6, high: hi, linear: false };
    if (!this.palettes.has(key)) this.palettes.set(key, new Palette({ name: ramp, dark: theme.dark, ...ends, threshold: null, coding: { hi, step: app.info.step }, ground: rgb(theme.ground) }));
    return this.palettes.get(key);
  }

  // Of the head that is shown, for the bytes of its own layer or of another.
  palette(layer = this.app.state.get("layer")) {
    const { app } = this, theme = this.theme(), ends = app.range.ends(), { ramp, threshold } = app.state.values;
    const { signed, step } = app.coding(), of = JSON.stringify([ends, ramp, threshold, signed]), { hi } = app.info.layers[layer];
    if (this.of !== of) this.palettes.clear();
    if (!signed) this.ends = ends;
    this.of = of;
    if (!this.palettes.has(hi)) {
      const coding = { hi, step, signed };
      this.palettes.set(hi, new Palette({ name: ramp, dark: theme.dark, ...ends, threshold, coding, ground: rgb(theme.ground) }));
    }
    return this.palettes.get(hi);
  }
}
