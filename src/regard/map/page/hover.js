// What is under the pointer: the drawn value at once, the exact weight and rank when they have come.

import { valueOf } from "./codec.js";
import { make } from "./shared/dom.js";
import { multiple, position, signedMultiple, signedWeight, weight } from "./shared/format.js";
import { sideOf } from "./geometry.js";
import { debounce } from "./shared/state.js";

export class Hover {
  constructor(app, stage) {
    this.app = app;
    this.tip = make("div", stage, { name: "tip" });
    this.tip.hidden = true;
    this.at = null;
    this.from = { x: 0, y: 0, pane: null };
    this.abort = null;
    this.ask = debounce(80, () => this.exact());
    for (const { canvas } of app.plots) {
      canvas.addEventListener("pointermove", (event) => this.move(event));
      canvas.addEventListener("pointerleave", () => this.leave());
    }
  }

  get busy() {
    return this.ask.busy() || this.abort !== null;
  }

  move(event) {
    if (event.buttons || event.pointerType === "touch") return this.leave();
    const { x, y, pane } = this.app.pointer(event), layer = this.app.layer(), frame = this.app.frame();
    const exact = this.app.view.at(x, y), q = Math.floor(exact.q), k = Math.floor(exact.k);
    if (q < 0 || k < 0 || q >= layer.queries || k >= layer.keys) return this.leave();
    if (x + frame.x < frame.left || y + frame.y < frame.top || x + frame.x > frame.right || y + frame.y > frame.bottom) return this.leave();
    this.from = { x, y, pane };
    if (this.at?.q !== q || this.at?.k !== k) {
      this.at = { q, k };
      this.cancel();
      this.show(null);
      this.ask();
      this.app.invalidate();
    }
    this.place();
  }

  leave() {
    if (!this.at) return;
    this.at = null;
    this.cancel();
    this.tip.hidden = true;
    this.app.invalidate();
  }

  // After a move of the map or a change of head, what is shown no longer lies under the pointer.
  forget() {
    this.leave();
  }

  cancel() {
    this.ask.cancel();
    this.abort?.abort();
    this.abort = null;
  }

  async exact() {
    if (!this.at) return;
    const at = this.at, abort = new AbortController();
    this.abort = abort;
    try {
      const found = await this.app.transport.call("cell", { ...this.app.pair(), ...at }, abort.signal);
      if (this.at === at) this.show(found);
    } catch (error) {
      if (!abort.signal.aborted) this.show({ error: error.message });
    }
    if (this.abort === abort) this.abort = null;
  }

  show(found) {
    const { app, tip } = this, { q, k } = this.at, layer = app.layer();
    tip.replaceChildren();
    tip.hidden = false;
    Object.assign(tip.dataset, { q, k, state: found ? "exact" : "drawn", weight: found?.weight ?? "", rank: found?.rank ?? "" });
    this.line("query", q, found?.query_token, "query");
    this.line("key", k, found?.key_token, "key");
    const { value, side, empty } = this.drawn(layer), { compare } = app, said = compare.difference ? signedMultiple : (each) => multiple(2 ** each);
    const told = make("div", tip, { name: "told" });
    if (found?.error) told.textContent = found.error;
    else if (found && compare.on && !found.hidden) this.both(told, found);
    else if (found?.hidden) told.textContent = "hidden: this query does not see this key";
    else if (found) {
      make("strong", told, { text: weight(found.weight) });
      make("span", told, { text: ` ${multiple(found.weight * found.visible)} uniform` });
      const rank = Number.isFinite(found.rank) ? `rank ${position(found.rank)} of ${position(found.visible)} keys` : "";
      make("div", tip, { name: "more", text: rank });
    } else told.textContent = value === null ? (empty ? "hidden" : "…") : side === 1 ? `≈ ${said(value)} uniform` : "…";
    if (side > 1 && value !== null) {
      const how = app.state.get("statistic") === "max" ? (compare.difference ? "largest by size" : "largest") : "mean";
      const size = `${position(side)} × ${position(side)}`;
      make("div", tip, { name: "more", text: `${how} of ${size} here ≈ ${said(value)}` });
    }
    this.place();
  }

  // Both weights and their difference.
  both(box, { first, second, weight: difference, visible }) {
    for (const [name, own] of [["A", first], ["B", second]]) {
      const row = make("div", box, { name: "where" });
      make("span", row, { name: "axis", text: name });
      make("span", row, { text: own === null ? "hidden" : weight(own) });
    }
    const row = make("div", box, { name: "where" });
    make("span", row, { name: "axis", text: "A − B" });
    make("strong", row, { text: signedWeight(difference) });
    make("span", row, { text: `${signedMultiple(difference * visible)} uniform` });
  }

  line(name, at, token, axis) {
    const row = make("div", this.tip, { name: "where" });
    make("span", row, { name: "axis", text: name });
    make("span", row, { name: "number", text: position(at) });
    const text = this.app.word(axis, at) ?? (token ? this.app.label(token) : "");
    if (text) make("span", row, { name: "token", text });
  }

  // The value of the dot under the pointer, from the tile in memory.
  drawn(layer) {
    const z = this.app.plot.level(layer), side = sideOf(layer, z);
    const row = Math.floor(this.at.q / side), column = Math.floor(this.at.k / side);
    const { panes } = this.app.layout, place = this.app.places()[Math.max(panes.indexOf(this.from.pane), 0)] ?? this.app.place();
    const tile = this.app.store.get(place, { z, y: row >> 8, x: column >> 8 });
    if (!tile || tile.empty) return { value: null, side, empty: Boolean(tile) };
    const byte = tile[this.app.state.get("statistic")][(row & 255) * 256 + (column & 255)];
    return { value: valueOf(byte, this.app.coding()), side, empty: byte === 0 };
  }

  // Beside the pointer, on the side that has room, and never over the card.
  place() {
    const { layout, stage } = this.app, { x, y, width, height } = this.app.frame(), wide = this.tip.offsetWidth, high = this.tip.offsetHeight;
    const { pane } = this.from, end = layout.split ? { x: stage.clientWidth, y: stage.clientHeight } : { x: width, y: height };
    const beside = (at, size, last) => Math.round(Math.max(at + 16 + size > last - 4 ? at - size - 14 : at + 16, 4));
    this.tip.style.transform = `translate(${beside(pane.x + x + this.from.x, wide, end.x)}px, ${beside(pane.y + y + this.from.y, high, end.y)}px)`;
  }

  scene(frame, theme) {
    if (!this.at) return [];
    const { scale, offset } = this.app.view, { q, k } = this.at, side = Math.max(scale, 1);
    const x = frame.x + k * scale + offset.x, y = frame.y + q * scale + offset.y;
    return [
      { kind: "box", x: frame.left - 4, y, width: 4, height: side, fill: theme.ink },
      { kind: "box", x, y: frame.top - 4, width: side, height: 4, fill: theme.ink },
    ].filter((each) => each.x >= frame.left - 4 && each.y >= frame.top - 4);
  }
}
