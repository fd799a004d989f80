// Layers × heads as small maps, with one statistic of each head in words.

import { decodeThumbs } from "./codec.js";
import { sameSize } from "./compare.js";
import { DEFINITIONS } from "./definitions.js";
import { iconButton, make } from "./shared/dom.js";
import { Thumb, sizeFor } from "./thumb.js";

const SIDE = 56; // CSS pixels, as in map.css

export class Heads {
  constructor(app, stage) {
    this.app = app;
    this.thumbs = new Map();
    this.statistics = new Map();
    this.pending = 0;
    this.root = make("aside", stage, { name: "picker", "aria-label": "Layers and heads" });
    this.root.hidden = true;
    this.root.id = "regard-heads";
    const top = make("div", this.root, { name: "picker-top" });
    this.target = "head"; // what a click chooses: the head, or the "other" that it is compared with
    this.heading = make("h2", top);
    const label = make("label", top, { name: "soft", text: "show " });
    this.column = make("select", label, { "aria-label": "Statistic under each head" });
    this.column.addEventListener("change", () => this.captions());
    this.batch = make("select", top, { "aria-label": "Text" });
    const texts = Math.max(...app.info.layers.map((layer) => layer.batch));
    for (let n = 0; n < texts; n++) make("option", this.batch, { text: `text ${n}`, value: n });
    this.batch.hidden = texts === 1;
    this.batch.addEventListener("change", () => this.choose({ ...this.chosen, batch: Number(this.batch.value) }));
    const close = iconButton("close", top, "Close", "Escape");
    close.addEventListener("click", () => this.toggle(false));
    this.list = make("div", this.root, { name: "layers" });
    this.detail = make("p", this.root, { name: "soft detail" });
    this.rows = this.told = null;
  }

  get open() {
    return !this.root.hidden;
  }

  get busy() {
    return this.pending > 0;
  }

  // The head that is chosen now.
  get chosen() {
    const { app } = this, { layer, batch, head } = app.state.values;
    return this.target === "other" && app.compare.other ? app.compare.other : { layer, batch, head };
  }

  choose({ layer, head, batch = this.chosen.batch }) {
    const { app } = this, of = app.info.layers[layer];
    if (this.target !== "other") return app.acts.choose({ layer, head, batch });
    app.compare.choose({ layer, head: Math.min(head, of.heads - 1), batch: Math.min(batch, of.batch - 1) });
  }

  // Open for one of the two heads of a comparison.
  pick(target) {
    const again = this.open && this.target === target;
    this.target = target;
    if (this.open) this.draw();
    this.toggle(!again);
  }

  thumb({ layer, batch, head, less }) {
    if (less) return null;
    return this.thumbs.get(`${layer}.${batch}`)?.[head] ?? null;
  }

  toggle(open = !this.open) {
    if (open === this.open || this.app.info.saved) return;
    this.root.hidden = !open;
    this.app.chip.setAttribute("aria-expanded", String(open));
    if (!open) this.target = "head";
    if (!open) return this.app.plot.canvas.focus();
    this.app.acts.closeMenus(this);
    if (!this.rows) this.build();
    this.draw();
    this.current()?.button.focus();
    this.current()?.button.scrollIntoView({ block: "nearest" });
  }

  build() {
    const { app } = this, seen = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) this.load(Number(entry.target.dataset.layer));
    }, { root: this.list, rootMargin: "200px" });
    this.rows = app.info.layers.map((layer, n) => {
      const row = make("div", this.list, { name: "layer", "data-layer": n });
      make("h3", row, { text: app.label(layer.name) });
      const grid = make("div", row, { name: "grid", role: "group", "aria-label": layer.name });
      const heads = Array.from({ length: layer.heads }, (_, head) => this.cell(grid, n, head));
      seen.observe(row);
      return heads;
    });
  }

  cell(grid, layer, head) {
    const button = make("button", grid, { name: "head", "aria-label": this.app.headName(layer, head) });
    const canvas = make("canvas", make("span", button, { name: "small" })), caption = make("span", button, { text: String(head) });
    button.addEventListener("click", () => this.choose({ layer, head }));
    const tell = () => this.tell(layer, head);
    button.addEventListener("focus", tell);
    button.addEventListener("pointerenter", tell);
    button.addEventListener("keydown", (event) => this.walk(event, layer, head));
    return { button, canvas, caption };
  }

  // Arrow keys go from head to head.
  walk(event, layer, head) {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const row = this.rows[layer + step[0]];
    row?.[Math.min(head + step[1], row.length - 1)]?.button.focus();
  }

  // `what` of all heads of a layer, once per batch row.
  async fetch(what, kept, layer, body, read) {
    const batch = Math.min(this.chosen.batch, this.app.info.layers[layer].batch - 1), key = `${layer}.${batch}`;
    if (kept.has(key)) return;
    kept.set(key, null);
    this.pending++;
    try {
      kept.set(key, read(await this.app.transport.call(what, { layer, batch, ...body })));
    } catch {
      kept.delete(key);
    }
    this.pending--;
    this.app.invalidate();
    if (this.open) this.draw();
  }

  async load(layer) {
    const of = this.app.info.layers[layer], thumbs = (buffer) => decodeThumbs(buffer).map((each) => new Thumb(each, of));
    await this.fetch("thumbs", this.thumbs, layer, { size: sizeFor(of) }, thumbs);
    if (this.open) await this.fetch("heads", this.statistics, layer, {}, (table) => table);
  }

  current() {
    return this.rows?.[this.chosen.layer]?.[this.chosen.head];
  }

  draw() {
    if (!this.open || !this.rows) return;
    const { layer: ours, batch, head: own } = this.chosen;
    this.heading.textContent = this.app.compare.on ? `Head ${this.target === "other" ? "B" : "A"}` : "Layers and heads";
    this.batch.value = batch;
    const { app } = this, statistic = app.state.get("statistic"), { hidden } = app.look.theme();
    this.rows.forEach((heads, layer) => heads.forEach((each, head) => {
      each.button.setAttribute("aria-pressed", String(layer === ours && head === own));
      each.button.disabled = this.target === "other" && !sameSize(app.info.layers[layer], app.layer());
      if (each.button.disabled) each.button.title = "This layer has another size";
      else each.button.removeAttribute("title");
      const thumb = this.thumb({ layer, batch, head });
      if (thumb) this.paint(each.canvas, thumb, statistic, app.look.plain(layer), hidden);
    }));
    this.captions();
    if (this.told) this.tell(...this.told);
  }

  paint(canvas, thumb, statistic, palette, hidden) {
    const of = [thumb, statistic, palette, hidden];
    if (canvas.of?.every((each, n) => each === of[n])) return;
    canvas.of = of;
    const picture = thumb.picture(statistic, palette, hidden, Math.round(SIDE * this.app.plot.ratio));
    canvas.width = picture.width;
    canvas.height = picture.height;
    canvas.getContext("2d").drawImage(picture, 0, 0);
    canvas.style.width = `${canvas.width / this.app.plot.ratio}px`;
  }

  captions() {
    const tables = [...this.statistics.values()].filter(Boolean);
    if (tables.length && !this.column.options.length) {
      make("option", this.column, { text: "heads", value: "" });
      for (const name of tables[0].columns) make("option", this.column, { text: name, value: name, title: DEFINITIONS[name] ?? "" });
    }
    this.column.title = DEFINITIONS[this.column.value] ?? "The statistic that is written under each head";
    this.column.parentElement.hidden = !tables.length;
    this.rows?.forEach((heads, layer) => heads.forEach(({ caption }, head) => {
      const value = this.read(layer, head).find(([name]) => name === this.column.value)?.[1];
      caption.textContent = value ?? this.app.info.layers[layer].head_names?.[head] ?? String(head);
    }));
  }

  read(layer, head) {
    const table = this.statistics.get(`${layer}.${this.chosen.batch}`), row = table?.rows[head];
    const text = (value) => (typeof value === "number" ? String(Number(value.toPrecision(3))) : value === null ? "–" : String(value));
    return row ? table.columns.map((name, n) => [name, text(row[n])]) : [];
  }

  tell(layer, head) {
    this.told = [layer, head];
    const words = this.read(layer, head), { sampled } = this.statistics.get(`${layer}.${this.chosen.batch}`) ?? {};
    this.detail.replaceChildren();
    make("span", this.detail, { text: `${this.app.headName(layer, head)}${words.length ? ": " : ""}` });
    words.forEach(([name, value], n) => {
      if (n) make("span", this.detail, { text: " · " });
      make("span", this.detail, { name: "defined", text: `${name} ${value}`, title: DEFINITIONS[name] ?? "" });
    });
    if (words.length && sampled) make("span", this.detail, { text: ` (of ${sampled} sampled queries)` });
  }
}
