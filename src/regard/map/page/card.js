// The card of what is pinned: the exact cell, what its query reads from, and who reads its key.

import { DEFINITIONS } from "./definitions.js";
import { iconButton, make } from "./shared/dom.js";
import { brief, count, multiple, position, signedMultiple, signedWeight, weight } from "./shared/format.js";

const SHOWN = 5;

export class Card {
  constructor(app, stage, row, column) {
    this.app = app;
    this.row = row;
    this.column = column;
    this.root = make("aside", stage, { name: "card", "aria-label": "Pinned row and column" });
    this.root.hidden = true;
    this.cell = null;
    this.abort = null;
    this.incomplete = false;
  }

  get busy() {
    return this.abort !== null;
  }

  // Another cell, or another head: its exact weight is asked for.
  async change() {
    const { app } = this, q = app.state.get("row"), k = app.state.get("column");
    this.abort?.abort();
    this.abort = null;
    this.cell = null;
    this.draw();
    if (q === null || k === null) return;
    const abort = new AbortController();
    this.abort = abort;
    try {
      const cell = await app.transport.call("cell", { ...app.pair(), q, k }, abort.signal);
      if (abort.signal.aborted) return;
      this.cell = cell;
      const told = cell.hidden ? "hidden" : `${app.compare.on ? `A less B ${signedWeight(cell.weight)}` : `weight ${weight(cell.weight)}`}, rank ${position(cell.rank)}`;
      app.announce(`query ${position(q)}, key ${position(k)}: ${told}`);
    } catch (error) {
      if (abort.signal.aborted) return;
      this.cell = { error: error.message };
    }
    this.abort = null;
    this.draw();
  }

  draw() {
    const { app, root } = this, q = app.state.get("row"), k = app.state.get("column"), scrolled = this.body?.scrollTop ?? 0;
    root.hidden = q === null && k === null;
    app.stage.classList.toggle("carded", !root.hidden);
    root.replaceChildren();
    this.incomplete = false;
    if (root.hidden) return;
    const top = make("div", root, { name: "card-top" }), head = make("div", top);
    const close = iconButton("close", top, "Unpin", "Escape");
    close.addEventListener("click", () => app.acts.pin(null, null));
    this.body = make("div", root, { name: "card-body" });
    if (q !== null && k !== null) this.drawCell(head);
    const { beside } = app.compare, [a, b] = beside ? ["A ", "B "] : ["", ""];
    if (q !== null) {
      this.drawSide(k === null ? head : null, this.row, "query", q, `${a}reads from`, "k", "key");
      if (beside) this.drawSide(null, app.otherRow, "query", q, `${b}reads from`, "k", "key", false);
    }
    if (k !== null) {
      this.drawSide(q === null ? head : null, this.column, "key", k, beside ? "in A is read by" : "is read by", "q", "query");
      if (beside) this.drawSide(null, app.otherColumn, "key", k, "in B is read by", "q", "query", false);
    }
    this.body.scrollTop = scrolled;
  }

  // Tokens have come that the card may have been drawn without.
  refresh() {
    if (this.incomplete) this.draw();
  }

  drawCell(box) {
    const { cell } = this;
    Object.assign(this.root.dataset, { weight: cell?.weight ?? "", rank: cell?.rank ?? "" });
    if (!cell) make("p", box, { name: "soft", text: "…" });
    else if (cell.error) make("p", box, { name: "soft", text: cell.error });
    else if (cell.hidden) make("p", box, { name: "soft", text: "Hidden: this query does not see this key." });
    else if (this.app.compare.on) {
      make("p", box, { name: "big", text: signedWeight(cell.weight), title: DEFINITIONS.difference });
      make("p", box, { text: `A − B, ${signedMultiple(cell.weight * cell.visible)} uniform`, title: DEFINITIONS.difference });
      for (const [name, own] of [["A", cell.first], ["B", cell.second]]) make("p", box, { name: "soft", text: `${name} ${own === null ? "hidden" : weight(own)}`, title: DEFINITIONS.weight });
    } else {
      make("p", box, { name: "big", text: weight(cell.weight), title: DEFINITIONS.weight });
      make("p", box, { text: `${multiple(cell.weight * cell.visible)} uniform`, title: DEFINITIONS.uniform });
      make("p", box, { name: "soft", text: `rank ${position(cell.rank)} of ${count(cell.visible, "key")}`, title: DEFINITIONS.rank });
    }
  }

  // `head`: where the heading stands, if not with the rest; `named`: whether there is one.
  drawSide(head, profile, axis, at, verb, other, otherAxis, named = true) {
    const { app } = this, box = make("section", this.body), signed = app.compare.difference;
    if (named) this.heading(make("h2", head ?? box), axis, at);
    if (profile.failed) make("p", box, { name: "soft", text: profile.failed });
    const found = profile.found;
    if (!found) return;
    for (const [name, text] of this.summary(axis, found)) make("p", box, { name: "soft defined", text, title: DEFINITIONS[name] });
    if (!found.top?.length) return;
    make("h3", box, { text: signed ? `largest differences, by ${otherAxis}` : verb });
    const list = make("ol", box), most = Math.abs(found.top[0].weight) || 1;
    for (const each of found.top.slice(0, SHOWN)) {
      const button = make("button", make("li", list), { name: "entry" });
      const bar = make("span", button, { name: "bar" });
      bar.style.setProperty("--part", `${Math.max((100 * Math.abs(each.weight)) / most, 1)}%`);
      make("span", button, { name: "token", text: each.token != null ? app.label(each.token) : otherAxis });
      make("span", button, { name: "number", text: position(each[other]) });
      make("span", button, { name: "value", text: signed ? signedWeight(each.weight, brief) : brief(each.weight) });
      const target = other === "k" ? { q: at, k: each.k } : { q: each.q, k: at };
      button.addEventListener("click", () => app.acts.goTo(target));
    }
  }

  heading(heading, axis, at) {
    const { app } = this, token = app.word(axis, at);
    make("span", heading, { name: "place", text: `${axis} ${position(at)}` });
    if (token !== null) make("span", heading, { name: "token", text: token, title: token });
    else if (app.tokens.has(app.state.get("layer"), axis)) this.incomplete = true;
  }

  summary(axis, found) {
    const { visible, side } = found;
    if (side) return [["squares", `shown by squares of ${count(side, "weight")} a side`]];
    if (this.app.compare.difference) {
      if (axis === "key") return [["receives less", `A − B: receives ${signedWeight(found.sum, brief)} in all`]];
      return [["variation", `${(100 * found.variation).toFixed(1)} % of its weight lies elsewhere`]];
    }
    if (axis === "key") return [["seen by", `seen by ${count(visible, "query", "queries")}`], ["receives", `receives ${Number(found.sum.toPrecision(4))} in all`]];
    const alike = `entropy ${found.entropy.toFixed(2)} nats, like ${count(Math.round(Math.exp(found.entropy)), "equal key")}`;
    return [["sees", `sees ${count(visible, "key")}`], ["entropy", alike]];
  }
}
