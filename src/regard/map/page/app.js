// The page: builds its parts and carries what one of them finds to the others.

import * as address from "./address.js";
import { axes, frameOf, originOf } from "./axes.js";
import { Card } from "./card.js";
import { Palette, RAMPS } from "./colors.js";
import { icon, iconButton, make } from "./dom.js";
import { position, shorten, tokenLabel } from "./format.js";
import { Heads } from "./heads.js";
import { Hover } from "./hover.js";
import { listen } from "./keys.js";
import { Legend } from "./legend.js";
import { Menu, Strongest, help } from "./menus.js";
import { Minimap } from "./minimap.js";
import { Notice } from "./notice.js";
import { Plot } from "./plot.js";
import { Profile } from "./profile.js";
import { Range } from "./range.js";
import { download, png, svg } from "./save.js";
import { paint } from "./scene.js";
import { Search } from "./search.js";
import { State, debounce } from "./state.js";
import { TileStore } from "./tiles.js";
import { Tokens } from "./tokens.js";
import { patient } from "./transport.js";
import { View } from "./view.js";

const CELL = 24; // CSS pixels of a cell that was gone to
const NARROW = 760; // CSS pixels, as in map.css
const COLORS = ["paper", "ink", "soft", "line", "hidden", "mark", "ground"];
const rgb = (text) => text.match(/\w\w/g).map((part) => parseInt(part, 16));

export class App {
  constructor(root, transport, info, route) {
    Object.assign(this, { root, transport: patient(transport), info, route, frame: 0, colors: null, ended: false });
    const first = address.read(route.read(), info);
    this.state = new State({ ...first.state, theme: "auto" });
    this.build(transport);
    this.wire();
    this.resize();
    this.view.show(this.sheet());
    if (first.at) this.view.moveTo(first.at, { fly: false });
    else this.view.goHome({ fly: false });
    this.changedPlace();
  }

  build(transport) {
    const { root, info } = this;
    root.classList.add("regard-map");
    const top = make("header", root, { name: "top" });
    make("h1", top, { text: shorten(this.label(info.title || "Attention"), 80) });
    this.chip = make("button", top, { name: "chip", "aria-expanded": "false", "aria-controls": "regard-heads", title: "Layers and heads (h)" });
    icon("heads", this.chip);
    this.chipText = make("span", this.chip);
    icon("down", this.chip);
    this.search = new Search(this, top);
    const tools = make("div", top, { name: "tools" });
    this.stage = make("main", root, { name: "stage" });
    const canvas = make("canvas", this.stage, { name: "plot", tabindex: "0", role: "application" });
    this.over = make("canvas", this.stage, { name: "over", "aria-hidden": "true" });
    this.store = new TileStore(transport, info, () => this.invalidate());
    this.tokens = new Tokens(this.transport, info, () => {
      this.search.refresh();
      this.card.refresh();
      this.invalidate();
    });
    this.view = new View(canvas, () => this.moved());
    this.plot = new Plot(canvas, this.view, this.store);
    this.row = new Profile(this, "row", () => this.card.draw());
    this.column = new Profile(this, "column", () => this.card.draw());
    this.range = new Range(this);
    this.hover = new Hover(this, this.stage);
    this.notice = new Notice(this, this.stage);
    const corner = make("div", this.stage, { name: "corner" }), buttons = make("div", corner, { name: "zoom" });
    iconButton("plus", buttons, "Zoom in", "+").addEventListener("click", () => this.view.zoomBy(2));
    iconButton("minus", buttons, "Zoom out", "-").addEventListener("click", () => this.view.zoomBy(0.5));
    iconButton("fit", buttons, "The whole matrix", "0").addEventListener("click", () => this.jump(() => this.view.goHome()));
    this.minimap = new Minimap(this, corner);
    this.card = new Card(this, this.stage, this.row, this.column);
    this.heads = new Heads(this, this.stage);
    this.strongest = new Strongest(this, tools);
    this.saving = new Menu(this, tools, "save", "Save the view", "e", (panel, menu) => {
      make("h2", panel, { text: "Save the view" });
      for (const kind of ["png", "svg"]) {
        const button = make("button", panel, { name: "wide", text: kind.toUpperCase() });
        button.addEventListener("click", () => { menu.toggle(false); this.save(kind); });
      }
    });
    iconButton("theme", tools, "Light or dark", "t").addEventListener("click", () => this.switchTheme());
    this.help = new Menu(this, tools, "help", "Keys and pointer", "?", help);
    this.legend = new Legend(this, root);
    this.live = make("div", root, { name: "live", role: "status", "aria-live": "polite" });
  }

  wire() {
    const { state } = this, canvas = this.plot.canvas;
    state.on("sheet batch head", () => this.changedPlace());
    state.on("statistic scale ramp threshold theme", () => { this.colors = null; this.range.view = null; this.invalidate(); this.keepAddress(); });
    state.on("row column", (names) => this.changedPins(names));
    this.ask = debounce(40, () => {
      const sheet = this.sheet();
      this.store.want(this.place(), this.plot.wanted(sheet, this.notice.exact ? 0 : sheet.estimate_from));
    });
    this.settle = debounce(250, () => this.keepAddress());
    this.chip.addEventListener("click", () => this.heads.toggle());
    canvas.addEventListener("click", (event) => this.clicked(event));
    this.stage.addEventListener("click", (event) => { if (event.target === this.stage) this.clicked(event); });
    this.unroute = this.route.listen(() => this.follow());
    this.unlisten = listen(this, this.route.ear ?? this.root);
    this.dark = window.matchMedia("(prefers-color-scheme: dark)");
    this.redress = () => { this.colors = null; this.invalidate(); };
    this.dark.addEventListener("change", this.redress);
    this.watch = new ResizeObserver(() => this.resize());
    this.watch.observe(this.stage);
  }

  end() {
    this.ended = true;
    this.watch.disconnect();
    this.notice.end();
    this.unroute();
    this.unlisten();
    this.dark.removeEventListener("change", this.redress);
    this.transport.close();
  }

  sheet() { return this.info.sheets[this.state.get("sheet")]; }
  place() { const { sheet, batch, head } = this.state.values; return { sheet, batch, head }; }
  coding() { return { hi: this.sheet().hi, step: this.info.step }; }
  headName(sheet, head) { const { name, head_names: names } = this.info.sheets[sheet]; return `${this.label(name)} · ${names ? this.label(names[head]) : `head ${head}`}`; }
  label(text) { return tokenLabel(String(text)); }
  stageWidth() { return this.stage.clientWidth; }
  announce(text) { this.live.textContent = text; }

  get idle() {
    const parts = [this.store, this.hover, this.row, this.column, this.card, this.search, this.strongest, this.heads];
    return !this.frame && !this.view.goal && !this.ask.busy() && !this.settle.busy() && !this.tokens.pending && !parts.some((part) => part.busy);
  }

  // Layout and drawing

  resize() {
    const wide = this.stage.clientWidth, high = this.stage.clientHeight, narrow = wide <= NARROW;
    if (!wide || !high) return;
    const { x, y } = (this.origin = originOf(narrow)), ratio = window.devicePixelRatio || 1;
    this.room = { width: wide, height: high, narrow };
    const width = Math.max(wide - x, 50), height = Math.max(high - y, 50);
    Object.assign(this.plot.canvas.style, { left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` });
    this.plot.resize(width, height, ratio);
    this.over.width = Math.round(wide * ratio);
    this.over.height = Math.round(high * ratio);
    this.view.resize(width, height);
    this.moved();
  }

  box() {
    const { width, height, narrow } = this.room;
    return frameOf(this.view, this.sheet(), this.origin, width, height, narrow);
  }

  theme() {
    if (this.colors) return this.colors.theme;
    const chosen = this.state.get("theme"), dark = chosen === "auto" ? this.dark.matches : chosen === "dark";
    this.root.dataset.theme = dark ? "dark" : "light";
    const style = getComputedStyle(this.root);
    const theme = Object.fromEntries(COLORS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.colors = { theme: { ...theme, dark }, palette: null, of: "" };
    return this.colors.theme;
  }

  palette() {
    const theme = this.theme(), ends = this.range.ends(), { ramp, threshold } = this.state.values, coding = this.coding();
    const of = JSON.stringify([ends, ramp, threshold, coding]);
    if (this.colors.of !== of) {
      const look = { name: ramp, dark: theme.dark, ...ends, threshold, coding, ground: rgb(theme.ground) };
      Object.assign(this.colors, { of, palette: new Palette(look) });
    }
    return this.colors.palette;
  }

  invalidate() {
    if (!this.frame && !this.ended) this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  draw() {
    const sheet = this.sheet(), statistic = this.state.get("statistic"), theme = this.theme(), palette = this.palette();
    const drawn = this.plot.draw(this.place(), sheet, statistic, palette, theme, this.heads.thumb(this.place()));
    const context = this.over.getContext("2d"), ratio = this.plot.ratio;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.over.width, this.over.height);
    paint(context, this.scene(true));
    this.minimap.draw(statistic, palette, theme);
    this.legend.draw(palette, theme);
    this.notice.draw(drawn);
    this.heads.draw();
    if (!drawn.missing && this.range.rest()) this.invalidate();
  }

  scene(pointer) {
    const theme = this.theme(), frame = this.box(), read = (axis, at) => this.tokens.label(this.state.get("sheet"), axis, at);
    return [
      ...this.row.scene(frame, theme), ...this.column.scene(frame, theme),
      ...this.row.marks(frame, theme), ...this.column.marks(frame, theme),
      ...axes(this.view, this.sheet(), frame, theme, read),
      ...(pointer ? this.hover.scene(frame, theme) : []),
    ];
  }

  // Changes

  moved() {
    if (!this.hover) return;
    this.hover.forget();
    this.row.again();
    this.column.again();
    this.ask();
    this.settle();
    this.invalidate();
  }

  changedPlace() {
    const sheet = this.sheet(), { row, column } = this.state.values, { head, batch } = this.state.values;
    this.view.show(sheet);
    if (this.view.atHome) this.view.goHome({ fly: false });
    this.state.set({ row: row !== null && row >= sheet.queries ? null : row, column: column !== null && column >= sheet.keys ? null : column });
    const name = `${this.headName(this.state.get("sheet"), head)}${sheet.batch > 1 ? ` · text ${batch}` : ""}`;
    this.chipText.textContent = name;
    this.route.title(`${name} · ${this.label(this.info.title || "Attention")}`);
    this.plot.canvas.setAttribute("aria-label", `Attention map of ${name}: ${sheet.queries} queries by ${sheet.keys} keys. Press ? for keys.`);
    this.range.view = null;
    this.changedPins(["row", "column"]);
    if (this.heads.open) this.heads.load(this.state.get("sheet"));
    this.notice.follow();
    this.moved();
  }

  changedPins(names) {
    for (const axis of ["row", "column"]) {
      if (!names.includes(axis)) continue;
      this[axis].clear();
      this[axis].load();
    }
    this.card.change();
    this.keepAddress();
    this.invalidate();
  }

  keepAddress() {
    this.settle.cancel();
    this.route.replace(address.write({ state: this.state.values, at: this.view.atHome ? null : this.view.goal || this.view.place() }));
  }

  // What a person may want to come back from: the place before it stays in the history.
  jump(act) {
    this.keepAddress();
    this.route.push();
    act();
    this.settle();
  }

  follow() {
    const { state, at } = address.read(this.route.read(), this.info);
    this.state.set(state);
    if (at) this.view.moveTo(at, { fly: false });
    else this.view.goHome({ fly: false });
  }

  // Acts

  choose({ sheet, head, batch = this.state.get("batch") }) {
    const of = this.info.sheets[sheet];
    this.jump(() => this.state.set({ sheet, head: Math.min(head, of.heads - 1), batch: Math.min(batch, of.batch - 1) }));
  }

  nextHead(by) { const { sheet, head } = this.state.values, { heads } = this.sheet(); this.choose({ sheet, head: (head + by + heads) % heads }); }
  nextLayer(by) { const { sheet, head } = this.state.values, { length } = this.info.sheets; this.choose({ sheet: (sheet + by + length) % length, head }); }
  nextColors() { const names = Object.keys(RAMPS); this.state.set({ ramp: names[(names.indexOf(this.state.get("ramp")) + 1) % names.length] }); }
  switchTheme() { this.state.set({ theme: this.theme().dark ? "light" : "dark" }); }

  moveThreshold(by) {
    const { low, high } = this.range.ends(), now = this.state.get("threshold") ?? low, next = Math.min(now + by, high);
    this.state.set({ threshold: next <= low ? null : next });
  }

  pin(row, column) { this.state.set({ row, column }); }

  goToCell({ q, k }) {
    this.jump(() => {
      this.pin(q, k);
      this.view.moveTo({ q: q + 0.5, k: k + 0.5, scale: Math.max(this.view.scale, CELL) });
    });
  }

  // A whole row or column has no one cell: its meeting with the diagonal, or what is in the middle now.
  goToLine(axis, at) {
    const sheet = this.sheet(), now = this.view.center, start = sheet.query_start ?? 0, scale = Math.max(this.view.scale, CELL);
    const other = (value, length) => Math.min(Math.max(value, 0), length - 1) + 0.5;
    this.jump(() => {
      if (axis === "query") this.pin(at, null);
      else this.pin(null, at);
      const near = axis === "query" ? other(sheet.causal ? at + start : now.k, sheet.keys) : other(sheet.causal ? at - start : now.q, sheet.queries);
      this.view.moveTo(axis === "query" ? { q: at + 0.5, k: near, scale } : { q: near, k: at + 0.5, scale });
    });
  }

  inside(q, k) {
    const sheet = this.sheet(), clamp = (value, length) => Math.min(Math.max(Math.floor(value), 0), length - 1);
    return { q: clamp(q, sheet.queries), k: clamp(k, sheet.keys) };
  }

  clicked(event) {
    const box = this.plot.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const frame = this.box(), onQueries = x + frame.x < frame.left, onKeys = y + frame.y < frame.top;
    const at = this.view.at(x, y), sheet = this.sheet(), { q, k } = this.inside(at.q, at.k);
    if (event.defaultPrevented || (onQueries && onKeys)) return;
    if (!onKeys && (at.q < 0 || at.q >= sheet.queries)) return;
    if (!onQueries && (at.k < 0 || at.k >= sheet.keys)) return;
    this.pin(onKeys ? null : q, onQueries ? null : k);
  }

  pinMiddle() { const { q, k } = this.view.center, at = this.inside(q, k); this.pin(at.q, at.k); }

  // By one dot; the map follows when the pin leaves it.
  movePin(rows, columns) {
    const { row, column } = this.state.values, middle = this.view.center, scale = this.view.scale, step = Math.max(Math.round(1 / (scale * this.plot.ratio)), 1);
    const at = this.inside((row ?? middle.q) + rows * step, (column ?? middle.k) + columns * step), box = this.view.box();
    this.pin(at.q, at.k);
    if (at.q < box.q0 || at.q + 1 > box.q1 || at.k < box.k0 || at.k + 1 > box.k1) this.view.glide({ q: at.q + 0.5, k: at.k + 0.5, scale });
  }

  menus() { return [this.strongest.menu, this.saving, this.help, this.heads]; }
  closeMenus(but) { for (const each of this.menus()) if (each !== but && each.open) each.toggle(false); }

  escape() {
    const open = this.menus().find((each) => each.open);
    if (open) open.toggle(false);
    else this.pin(null, null);
    this.plot.canvas.focus();
  }

  picture() {
    const { width, height } = this.room, state = this.state.values, sheet = this.sheet();
    const title = `${this.label(this.info.title || "Attention")} · ${this.headName(state.sheet, state.head)}`;
    const note = `${position(sheet.queries)} queries (rows) × ${position(sheet.keys)} keys (columns); colors in multiples of uniform${this.notice.estimate ? "; estimate" : ""}`;
    return { title, meaning: this.legend.says(), note, scene: this.scene(false), frame: this.box(), palette: this.palette(), theme: this.theme(), width, height };
  }

  async save(kind) {
    this.draw();
    const picture = this.picture(), map = this.plot.canvas;
    const name = `${picture.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 80) || "attention"}.${kind}`;
    download(kind === "png" ? await png(picture, map, this.plot.ratio) : svg(picture, map), name);
    this.announce(`saved ${name}`);
  }
}
