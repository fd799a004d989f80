// The page: builds its parts and carries what one of them finds to the others.

import * as address from "./address.js";
import { Acts } from "./acts.js";
import { Card } from "./card.js";
import { listenToClicks } from "./clicks.js";
import { Compare } from "./compare.js";
import { Connection } from "./connection.js";
import { icon, iconButton, make } from "./shared/dom.js";
import { shorten, tokenLabel } from "./shared/format.js";
import { Heads } from "./heads.js";
import { Hover } from "./hover.js";
import { listen } from "./keys.js";
import { Layout } from "./layout.js";
import { Legend } from "./legend.js";
import { Look } from "./look.js";
import { Menu, help } from "./menus.js";
import { Minimap } from "./minimap.js";
import { Notice } from "./notice.js";
import { Plot } from "./plot.js";
import { Profile } from "./profile.js";
import { Range } from "./range.js";
import { Screen } from "./screen.js";
import { Search } from "./search.js";
import { State, debounce } from "./shared/state.js";
import { Strongest } from "./strongest.js";
import { TextPanel } from "./textpanel.js";
import { TileStore } from "./tiles.js";
import { Tokens } from "./tokens.js";
import { Trail } from "./trail.js";
import { patient, watched } from "./transport.js";
import { View } from "./view.js";
import { Walk } from "./walk.js";

export class App {
  constructor(root, transport, info, route) {
    this.connection = new Connection(this);
    const heard = watched(transport, (error) => this.connection.told(error));
    Object.assign(this, { root, transport: patient(heard), info, route });
    const first = address.read(route.read(), info);
    this.state = new State({ ...first.state, theme: "auto" });
    this.build(heard);
    this.wire();
    this.text.adapt();
    this.screen.resize();
    this.view.show(this.layer());
    if (first.at) this.view.moveTo(first.at, { fly: false });
    else this.view.goHome({ fly: false });
    this.changedPlace();
  }

  build(transport) {
    const { root, info } = this;
    root.classList.add("regard-map");
    this.acts = new Acts(this);
    this.walk = new Walk((place) => this.acts.goTo(place));
    this.look = new Look(this);
    this.layout = new Layout(() => ({ layer: this.layer(), row: this.state.get("row"), column: this.state.get("column"), beside: this.compare?.beside }));
    const top = make("header", root, { name: "top" });
    make("h1", top, { text: shorten(this.title(), 80), title: this.title() });
    this.chip = make("button", top, { name: "chip", "aria-expanded": "false", "aria-controls": "regard-heads", title: "Layers and heads (h)" });
    icon("heads", this.chip);
    this.chipText = { layer: make("span", this.chip), head: make("span", this.chip, { name: "fixed" }) };
    icon("down", this.chip);
    this.search = new Search(this, top);
    const tools = make("div", top, { name: "tools" });
    this.compare = new Compare(this, root);
    const middle = make("div", root, { name: "middle" });
    this.text = new TextPanel(this, middle);
    this.stage = make("main", middle, { name: "stage" });
    const canvas = make("canvas", this.stage, { name: "plot", tabindex: "0", role: "application" });
    const twin = make("canvas", this.stage, { name: "twin", role: "img" });
    const over = make("canvas", this.stage, { name: "over", "aria-hidden": "true" });
    this.screen = new Screen(this, over);
    this.store = new TileStore(transport, info, () => this.invalidate());
    this.tokens = new Tokens(this.transport, info, () => {
      for (const part of [this.search, this.card, this.strongest, this.text]) part.refresh();
      this.invalidate();
    });
    this.names = [0, 1].map(() => make("p", this.stage, { name: "pane-name" }));
    this.view = new View(canvas, twin, this.layout, () => this.moved());
    this.trail = new Trail(this, this.route);
    this.plots = [canvas, twin].map((each) => new Plot(each, this.view, this.store));
    this.plot = this.plots[0];
    const profile = (axis, place) => new Profile(this, axis, place, () => this.card.draw());
    this.row = profile("row", () => this.place());
    this.column = profile("column", () => this.place());
    this.otherRow = profile("row", () => this.places()[1]);
    this.otherColumn = profile("column", () => this.places()[1]);
    this.profiles = [this.row, this.column, this.otherRow, this.otherColumn];
    this.range = new Range(this);
    this.hover = new Hover(this, this.stage);
    this.notice = new Notice(this, this.stage);
    const side = make("div", this.stage, { name: "side" });
    this.card = new Card(this, side, this.row, this.column);
    const corner = make("div", side, { name: "corner" });
    this.minimap = new Minimap(this, corner);
    const buttons = make("div", corner, { name: "zoom" });
    iconButton("plus", buttons, "Zoom in", "+").addEventListener("click", () => this.view.zoomBy(2));
    iconButton("minus", buttons, "Zoom out", "-").addEventListener("click", () => this.view.zoomBy(0.5));
    iconButton("fit", buttons, "The whole matrix", "0").addEventListener("click", () => this.acts.home());
    this.heads = new Heads(this, this.stage);
    this.textButton = iconButton("text", tools, "The text beside the map", "x");
    this.textButton.setAttribute("aria-controls", "regard-text");
    this.textButton.setAttribute("aria-expanded", "false");
    this.textButton.addEventListener("click", () => this.text.toggle());
    this.compareButton = iconButton("compare", tools, "Compare with another head", "b");
    this.compareButton.addEventListener("click", () => this.compare.toggle());
    this.strongest = new Strongest(this, tools);
    this.saving = new Menu(this, tools, "save", "Save the view", "e", (panel, menu) => {
      make("h2", panel, { text: "Save the view" });
      for (const kind of ["png", "svg"]) {
        const button = make("button", panel, { name: "wide", text: kind.toUpperCase() });
        button.addEventListener("click", () => { menu.toggle(false); this.acts.save(kind); });
      }
    });
    if (info.saved) this.chip.disabled = this.compareButton.hidden = true; // one head is inside
    if (this.route.link) iconButton("link", tools, "Copy the address of this view", "y").addEventListener("click", () => this.acts.copyLink());
    iconButton("theme", tools, "Light or dark", "t").addEventListener("click", () => this.acts.switchTheme());
    this.help = new Menu(this, tools, "help", "Keys and pointer", "?", help);
    this.legend = new Legend(this, root);
    this.told = make("p", this.stage, { name: "toast", "aria-hidden": "true" });
    this.told.hidden = true;
    this.live = make("div", root, { name: "live", role: "status", "aria-live": "polite" });
  }

  wire() {
    const { state, acts, stage, plot } = this;
    state.on("layer batch head other mode", () => this.changedPlace());
    state.on("statistic scale ramp threshold theme", () => { this.look.forget(); this.range.view = null; this.invalidate(); this.trail.keep(); this.text.refresh(); });
    state.on("text", () => { this.text.change(); this.trail.keep(); });
    state.on("row column", (names) => this.changedPins(names));
    this.ask = debounce(40, () => {
      const layer = this.layer(), list = plot.wanted(layer, this.notice.exact ? 0 : layer.estimate_from), places = this.places();
      this.store.want(list.flatMap((at) => places.map((place) => ({ place, at }))));
    });
    this.settle = debounce(250, () => { this.trail.keep(); this.text.moved(); });
    this.chip.addEventListener("click", () => this.heads.pick("head"));
    const onMap = ({ target, defaultPrevented }) => !defaultPrevented && (target === stage || this.plots.some(({ canvas }) => canvas === target));
    this.clicking = listenToClicks(stage, onMap, (event) => acts.click(event), (event) => acts.zoomAt(event));
    this.unlisten = listen(this, this.route.ear ?? this.root);
    this.watch = new ResizeObserver(() => { this.text.adapt(); this.screen.resize(); });
    this.watch.observe(stage);
  }

  end() {
    this.screen.end();
    this.text.end();
    this.watch.disconnect();
    this.notice.end();
    this.look.end();
    this.trail.unlisten();
    this.unlisten();
    this.transport.close();
  }

  layer() { return this.info.layers[this.state.get("layer")]; }
  // What requests are about: a head, or the difference of two.
  place() { return this.compare.difference ? this.pair() : this.head(); }
  head() { const { layer, batch, head } = this.state.values; return { layer, batch, head }; }
  pair() { const { other } = this.compare; return other ? { ...this.head(), less: [other.layer, other.batch, other.head] } : this.head(); }
  places() { return this.compare.beside ? [this.head(), this.compare.other] : [this.place()]; }
  coding() { const signed = this.compare.difference; return { hi: this.layer().hi, step: signed ? this.info.signed_step : this.info.step, signed }; }
  title() { return this.label(this.info.title || "Attention"); }
  layerName(layer) { return this.label(this.info.layers[layer].name); }
  shortName(layer, head) { const { head_names: names } = this.info.layers[layer]; return names ? this.label(names[head]) : `head ${head}`; }
  headName(layer, head) { return `${this.layerName(layer)} · ${this.shortName(layer, head)}`; }
  label(text) { return tokenLabel(String(text)); }
  word(axis, at) { return this.tokens.label(this.place(), axis, at); }
  frame() { return this.layout.frame(this.view); }
  menus() { return [this.strongest.menu, this.saving, this.help, this.heads]; }
  invalidate() { this.screen?.invalidate(); }
  announce(text) { this.live.textContent = text; }

  // The same where it can be seen, for a moment.
  toast(text) {
    this.announce(text);
    this.told.textContent = text;
    this.told.hidden = false;
    clearTimeout(this.toasting);
    this.toasting = setTimeout(() => { this.told.hidden = true; }, 4000);
  }

  // Where an event is on the canvas of its pane.
  pointer({ clientX, clientY }) {
    const { left, top } = this.stage.getBoundingClientRect(), { origin } = this.layout, pane = this.layout.paneAt(clientX - left, clientY - top);
    return { x: clientX - left - pane.x - origin.x, y: clientY - top - pane.y - origin.y, pane };
  }

  // The cell at a place, or the nearest one.
  inside(q, k) {
    const layer = this.layer(), clamp = (value, length) => Math.min(Math.max(Math.floor(value), 0), length - 1);
    return { q: clamp(q, layer.queries), k: clamp(k, layer.keys) };
  }

  get idle() {
    const parts = [this.store, this.hover, ...this.profiles, this.card, this.search, this.strongest, this.heads, this.text];
    const due = this.screen.due || this.view.goal || this.ask.busy() || this.settle.busy() || this.clicking() || this.tokens.pending;
    return !due && !parts.some((part) => part.busy);
  }

  moved() {
    if (!this.hover) return;
    this.hover.forget();
    for (const each of this.profiles) each.again();
    this.ask();
    this.settle();
    this.invalidate();
  }

  changedPlace() {
    const layer = this.layer(), { layer: number, row, column, head, batch, other } = this.state.values;
    if (other && !this.compare.on) {
      this.toast("The comparison ends: this layer has another size.");
      return this.state.set({ other: null });
    }
    this.compare.draw();
    this.look.forget();
    this.view.show(layer);
    if (this.layout.split !== this.compare.beside) this.screen.resize();
    if (this.view.atHome) this.view.goHome({ fly: false });
    this.state.set({ row: row !== null && row >= layer.queries ? null : row, column: column !== null && column >= layer.keys ? null : column });
    this.names.forEach((name, n) => { name.textContent = this.compare.beside ? `${"AB"[n]} · ${this.compare.said(this.places()[n])}` : ""; });
    const title = this.layerName(number), short = `· ${this.shortName(number, head)}${layer.batch > 1 ? ` · text ${batch}` : ""}`, name = `${title} ${short}`;
    this.chipText.layer.textContent = title;
    this.chipText.head.textContent = short;
    const b = this.compare.on ? this.compare.said(this.compare.other) : "", shown = this.compare.difference ? `${name}, less ${b}` : name;
    this.route.title(`${shown} · ${this.title()}`);
    this.plots[1].canvas.setAttribute("aria-label", `Attention map of ${b}`);
    this.plot.canvas.setAttribute("aria-label", `Attention map of ${shown}: ${layer.queries} queries by ${layer.keys} keys. Press ? for keys.`);
    this.range.forget();
    this.changedPins(["row", "column"]);
    this.search.forget();
    this.strongest.forget();
    if (this.heads.open) this.heads.load(this.heads.chosen.layer);
    this.notice.follow();
    this.moved();
  }

  changedPins(names) {
    for (const axis of ["row", "column"]) {
      if (!names.includes(axis)) continue;
      for (const each of this.profiles.filter((profile) => profile.axis === axis)) {
        each.clear();
        each.load();
      }
    }
    if (this.layout.split) this.screen.resize(); // the card takes room from both panes
    this.view.adapt();
    this.card.change();
    this.text.change();
    this.trail.keep();
    this.invalidate();
  }
}
