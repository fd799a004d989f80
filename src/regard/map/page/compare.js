// Two heads at once: A, which the page shows anyway, and B, side by side or subtracted. Both have one size, so that one
// view, one pin and one pointer serve both.

import { icon, iconButton, make, segmented } from "./shared/dom.js";

export const MODES = ["side", "difference"];

export const sameSize = (a, b) => a.queries === b.queries && a.keys === b.keys;

// B as a text, for the state and the address: "layer,head", and ",batch" unless it is 0.
export const writePlace = ({ layer, head, batch }) => `${layer},${head}${batch ? `,${batch}` : ""}`;

// Back again; null if there is no such head, or it has another size than `of`.
export function readPlace(text, info, of) {
  const parts = /^(\d+),(\d+)(?:,(\d+))?$/.exec(text ?? "");
  if (!parts) return null;
  const [layer, head, batch] = [parts[1], parts[2], parts[3] ?? 0].map(Number), found = info.layers[layer];
  return found && head < found.heads && batch < found.batch && sameSize(found, of) ? { layer, batch, head } : null;
}

export class Compare {
  constructor(app, parent) {
    this.app = app;
    this.root = make("div", parent, { name: "compare", role: "group", "aria-label": "Two heads" });
    this.root.hidden = true;
    this.names = { a: this.name("A", "The head that is shown (h)"), b: this.name("B", "The head that it is compared with") };
    this.names.a.addEventListener("click", () => app.heads.pick("head"));
    this.names.b.addEventListener("click", () => app.heads.pick("other"));
    const modes = [
      { value: "side", text: "Side by side", title: "Both heads, moved together (d)" },
      { value: "difference", text: "A − B", title: "The weights of A less those of B (d)" },
    ];
    this.press = segmented(this.root, "How two heads are shown", modes, (mode) => app.state.set({ mode }));
    iconButton("swap", this.root, "Exchange A and B", "w").addEventListener("click", () => this.swap());
    iconButton("close", this.root, "End the comparison", "b").addEventListener("click", () => this.toggle(false));
  }

  name(letter, title) {
    const button = make("button", this.root, { name: "chip", title, "data-letter": letter });
    make("span", button, { name: "letter", text: letter });
    button.words = make("span", button);
    icon("down", button);
    return button;
  }

  get other() {
    const { app } = this;
    return readPlace(app.state.get("other"), app.info, app.layer());
  }

  get on() { return this.other !== null; }
  get beside() { return this.on && this.app.state.get("mode") === "side"; }
  get difference() { return this.on && this.app.state.get("mode") === "difference"; }

  // The head that a comparison begins with: the next of the layer, else the same of the next layer of this size.
  first() {
    const { app } = this, { layer, batch, head } = app.state.values, { layers } = app.info, of = layers[layer];
    if (app.info.saved) return null;
    if (of.heads > 1) return { layer, batch, head: (head + 1) % of.heads };
    for (let by = 1; by < layers.length; by++) {
      const next = (layer + by) % layers.length;
      if (sameSize(layers[next], of)) return { layer: next, batch: Math.min(batch, layers[next].batch - 1), head: Math.min(head, layers[next].heads - 1) };
    }
    return of.batch > 1 ? { layer, batch: (batch + 1) % of.batch, head } : null;
  }

  toggle(on = !this.on) {
    const { app } = this, first = on ? this.first() : null;
    if (on && !first) return app.toast("There is no other head of this size to compare with.");
    app.trail.jump(() => app.state.set({ other: first && writePlace(first) }));
    app.plot.canvas.focus();
  }

  choose(place) {
    this.app.trail.jump(() => this.app.state.set({ other: writePlace(place) }));
  }

  next(by) {
    const { other, app } = this;
    if (!other) return;
    const { heads } = app.info.layers[other.layer];
    this.choose({ ...other, head: (other.head + by + heads) % heads });
  }

  switchMode() {
    if (this.on) this.app.state.set({ mode: this.app.state.get("mode") === "side" ? "difference" : "side" });
  }

  swap() {
    const { other, app } = this, { layer, batch, head } = app.state.values;
    if (other) app.trail.jump(() => app.state.set({ ...other, other: writePlace({ layer, batch, head }) }));
  }

  // "A  layer 0 · head 3", with the text where there are several.
  said({ layer, batch, head }) {
    const { app } = this;
    return `${app.headName(layer, head)}${app.info.layers[layer].batch > 1 ? ` · text ${batch}` : ""}`;
  }

  draw() {
    const { app, other, root } = this;
    root.hidden = !other;
    app.chip.hidden = Boolean(other);
    app.compareButton.setAttribute("aria-pressed", String(Boolean(other)));
    if (!other) return;
    for (const [button, place] of [[this.names.a, app.state.values], [this.names.b, other]]) {
      button.words.textContent = this.said(place);
      button.setAttribute("aria-label", `${button.dataset.letter}: ${this.said(place)}`);
    }
    this.press(app.state.get("mode"));
  }
}
