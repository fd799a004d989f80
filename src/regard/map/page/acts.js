// What a person can do, whatever does it: a key, a pointer, an entry of a list.

import { RAMPS } from "./shared/colors.js";
import { count } from "./shared/format.js";
import { download, png, svg } from "./save.js";

const CELL = 24; // CSS pixels of a cell that was gone to
const LETTERS = 48; // of each part of a file's name

const plain = (text) => text.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, LETTERS).replace(/^-|-$/g, "");

export class Acts {
  constructor(app) {
    this.app = app;
  }

  choose({ layer, head, batch = this.app.state.get("batch") }) {
    const { app } = this, of = app.info.layers[layer];
    app.trail.jump(() => app.state.set({ layer, head: Math.min(head, of.heads - 1), batch: Math.min(batch, of.batch - 1) }));
  }

  nextHead(by) { const { layer, head } = this.app.place(), { heads } = this.app.layer(); this.choose({ layer, head: (head + by + heads) % heads }); }
  nextLayer(by) { const { layer, head } = this.app.place(), { length } = this.app.info.layers; this.choose({ layer: (layer + by + length) % length, head }); }

  switch(name, one, other) { this.app.state.set({ [name]: this.app.state.get(name) === one ? other : one }); }
  nextColors() { const names = Object.keys(RAMPS), { state } = this.app; state.set({ ramp: names[(names.indexOf(state.get("ramp")) + 1) % names.length] }); }
  switchTheme() { this.app.state.set({ theme: this.app.look.theme().dark ? "light" : "dark" }); }

  moveThreshold(by) {
    const { range, state } = this.app, { low, high } = range.ends(), next = Math.min((state.get("threshold") ?? low) + by, high);
    state.set({ threshold: next <= low ? null : next });
  }

  home() { const { look, range, trail, view } = this.app; range.forget(); look.forget(); trail.jump(() => view.goHome()); }
  onePixel() { const { view, plot, trail } = this.app; trail.jump(() => view.glide({ ...view.place(), scale: 1 / plot.ratio })); }

  pin(row, column) { this.app.state.set({ row, column }); }

  // To a cell, or to a row or column: at its meeting with the diagonal, or beside what is in the middle now.
  goTo({ q, k }) {
    const { app } = this, layer = app.layer(), now = app.view.center, start = layer.query_start ?? 0;
    const near = app.inside(q ?? (layer.causal ? k - start : now.q), k ?? (layer.causal ? q + start : now.k));
    app.trail.jump(() => {
      this.pin(q, k);
      if (app.view.atHome && app.layout.small) return; // it can be read where it is
      app.view.moveTo({ q: near.q + 0.5, k: near.k + 0.5, scale: Math.max(app.view.scale, CELL) });
    });
  }

  // A click on the map, or on an axis.
  click(event) {
    const { app } = this, { x, y } = app.pointer(event), frame = app.frame(), { q, k } = app.view.at(x, y), layer = app.layer();
    const onQueries = x + frame.x < frame.left, onKeys = y + frame.y < frame.top, at = app.inside(q, k);
    if ((onQueries && onKeys) || x + frame.x > frame.right || y + frame.y > frame.bottom) return;
    if ((!onKeys && (q < 0 || q >= layer.queries)) || (!onQueries && (k < 0 || k >= layer.keys))) return;
    this.pin(onKeys ? null : at.q, onQueries ? null : at.k);
    app.view.reveal(onKeys ? null : at.q, onQueries ? null : at.k);
  }

  zoomAt(event) {
    const { x, y } = this.app.pointer(event);
    this.app.view.zoomAt(x, y, event.shiftKey ? 0.5 : 2);
  }

  pinMiddle() { const { q, k } = this.app.view.center, at = this.app.inside(q, k); this.pin(at.q, at.k); }

  // By one dot; the map follows when the pin leaves it.
  movePin(rows, columns) {
    const { app } = this, { row, column } = app.state.values, middle = app.view.center;
    const step = Math.max(Math.round(1 / (app.view.scale * app.plot.ratio)), 1);
    const at = app.inside((row ?? middle.q) + rows * step, (column ?? middle.k) + columns * step);
    this.pin(at.q, at.k);
    app.view.reveal(at.q, at.k);
  }

  closeMenus(but) { for (const each of this.app.menus()) if (each !== but && each.open) each.toggle(false); }

  escape() {
    const open = this.app.menus().find((each) => each.open);
    if (open) open.toggle(false);
    else this.pin(null, null);
    this.app.plot.canvas.focus();
  }

  // The address holds no token: it opens where the printed one was opened before.
  async copyLink() {
    const { app } = this;
    if (!app.route.link) return;
    app.trail.keep();
    try {
      await navigator.clipboard.writeText(app.route.link());
      app.toast("The address of this view is in the clipboard.");
    } catch {
      app.toast(`The clipboard is closed to this page; the address is ${app.route.link()}`);
    }
  }

  async save(kind) {
    const { app } = this, { layer: number, head } = app.place(), layer = app.layer(), frame = app.frame(), { compare } = app;
    app.screen.draw();
    const [a, b] = [app.state.values, compare.other].map((place) => place && compare.said(place));
    const parts = [app.title(), compare.difference ? `${a} less ${b}` : b ? `${a} beside ${b}` : app.headName(number, head)], estimate = app.notice.estimate ? "; estimate" : "";
    const size = `${count(layer.queries, "query", "queries")} (rows) × ${count(layer.keys, "key")} (columns)`;
    const words = [app.legend.says(), size, `colors: ${compare.difference ? "A − B in " : ""}multiples of uniform${estimate}`], { look } = app;
    const { layout, plots, names } = app, panes = layout.panes.map((pane, n) => ({ ...pane, map: plots[n].canvas, scene: app.screen.scene(false, n), title: layout.split ? names[n].textContent : "" }));
    const part = layout.split ? layout.both : layout.used(frame);
    const picture = { parts, words, panes, frame, part, palette: look.palette(), theme: look.theme() };
    const whose = b ? [a, compare.difference ? "less" : "beside", b] : [app.layerName(number), app.shortName(number, head)];
    const name = `${[app.title(), ...whose].map(plain).filter(Boolean).join("-") || "attention"}.${kind}`;
    download(kind === "png" ? await png(picture, app.plot.ratio) : svg(picture, app.plot.ratio), name);
    app.toast(`saved ${name}`);
  }
}
