// One box for "where": two numbers are a query and a key, one number either, anything else is looked for among the tokens.

import { icon, make } from "./dom.js";
import { count, position } from "./format.js";
import { debounce } from "./state.js";

const LIMIT = 50, AROUND = 3;

const line = (axis, at) => (axis === "query" ? { q: at, k: null } : { q: null, k: at });

export class Search {
  constructor(app, parent) {
    this.app = app;
    this.form = make("form", parent, { name: "search", role: "search" });
    icon("search", this.form);
    this.input = make("input", this.form, {
      type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", placeholder: "Find a token, or go to query, key",
      "aria-label": "Find a token, or go to a query and a key", "aria-expanded": "false", "aria-controls": "regard-found",
    });
    this.list = make("div", this.form, { name: "found", role: "listbox", "aria-label": "Places found" });
    this.list.id = "regard-found";
    this.list.hidden = true;
    this.of = "";
    this.turn = 0;
    this.looking = null;
    this.abort = null;
    this.clear();
    this.ask = debounce(150, () => this.look());
    this.input.addEventListener("input", () => this.ask());
    this.input.addEventListener("focus", () => { if (this.options.length) this.show(true); });
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("focusout", (event) => { if (!this.form.contains(event.relatedTarget)) this.show(false); });
  }

  get busy() {
    return this.ask.busy() || this.abort !== null;
  }

  // What was found in one text is not looked at in another.
  forget() {
    const { queries, keys } = this.app.layer(), of = [this.app.state.get("batch"), queries, keys].join();
    if (this.of === of) return;
    this.of = of;
    this.ask.cancel();
    this.clear();
    this.show(false);
    this.app.walk.set([]);
  }

  // Who looked before no longer has a say.
  clear() {
    this.turn++;
    this.abort?.abort();
    this.abort = null;
    this.options = [];
    this.contexts = [];
    this.chosen = -1;
    this.list.replaceChildren();
  }

  focus(hint) {
    this.input.placeholder = hint;
    this.input.focus();
    this.input.select();
  }

  show(open) {
    this.list.hidden = !open;
    this.input.setAttribute("aria-expanded", String(open));
  }

  async key(event) {
    if (event.key === "Escape") {
      event.stopPropagation();
      this.show(false);
      this.app.plot.canvas.focus();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      this.mark(this.chosen + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (this.ask.busy()) { this.ask.cancel(); this.look(); }
      if (!this.options.length) await this.looking;
      this.options[Math.max(this.chosen, 0)]?.go();
    }
  }

  mark(at) {
    if (!this.options.length) return;
    this.chosen = (at + this.options.length) % this.options.length;
    this.options.forEach(({ element }, n) => element.setAttribute("aria-selected", String(n === this.chosen)));
    const { element } = this.options[this.chosen];
    this.input.setAttribute("aria-activedescendant", element.id);
    element.scrollIntoView({ block: "nearest" });
  }

  look() {
    this.clear();
    this.looking = this.looked(this.input.value, this.turn);
  }

  async looked(text, turn) {
    if (!text.trim()) return this.show(false);
    const pair = /^\s*(\d+)\s*[,;:\s]\s*(\d+)\s*$/.exec(text), single = /^\s*(\d+)\s*$/.exec(text);
    if (pair) this.offerCell(Number(pair[1]), Number(pair[2]));
    else if (single) { this.offerPosition("query", Number(single[1])); this.offerPosition("key", Number(single[1])); }
    if (!pair) await this.find(text);
    if (turn !== this.turn) return;
    this.refresh();
    if (!this.options.length && !this.list.childElementCount) make("p", this.list, { name: "soft", text: "Nothing found." });
    this.show(true);
  }

  offer(parts, go) {
    const element = make("div", this.list, { role: "option", "aria-selected": "false" });
    element.id = `regard-found-${this.options.length}`;
    for (const [name, text] of parts) make("span", element, { name, text });
    const act = () => { this.turn++; this.abort?.abort(); this.show(false); go(); this.app.plot.canvas.focus(); };
    element.addEventListener("pointerdown", (event) => event.preventDefault());
    element.addEventListener("click", act);
    this.options.push({ element, go: act });
    return element;
  }

  within(axis, at) {
    const layer = this.app.layer(), length = axis === "query" ? layer.queries : layer.keys;
    if (at < length) return true;
    make("p", this.list, { name: "soft", text: `There is no ${axis} ${position(at)}: the last is ${position(length - 1)}.` });
    return false;
  }

  offerCell(q, k) {
    if (!this.within("query", q) || !this.within("key", k)) return;
    this.offer([["", "Go to query "], ["number", position(q)], ["", ", key "], ["number", position(k)]], () => this.app.acts.goTo({ q, k }));
  }

  offerPosition(axis, at) {
    if (!this.within(axis, at)) return;
    this.offer([["", `Go to ${axis} `], ["number", position(at)]], () => this.app.acts.goTo(line(axis, at)));
  }

  async find(text) {
    const { app } = this, { layer, batch } = app.place(), abort = new AbortController();
    const axes = ["key", "query"].filter((axis) => app.tokens.has(layer, axis));
    if (!axes.length) return make("p", this.list, { name: "soft", text: "This map has no tokens; go to a position instead." });
    this.abort = abort;
    try {
      const found = await Promise.all(axes.map((axis) => app.transport.call("find", { layer, batch, axis, text, limit: LIMIT }, abort.signal)));
      const places = [];
      found.forEach(({ positions, total }, n) => {
        if (!positions.length) return;
        const more = total > positions.length ? `, the first ${positions.length}` : "";
        make("p", this.list, { name: "soft", text: `${count(total, axes[n], axes[n] === "key" ? "keys" : "queries")}${more}` });
        for (const at of positions) {
          const place = places.push(line(axes[n], at)) - 1;
          const element = this.offer([["number", position(at)]], () => { app.walk.set(places); app.walk.goTo(place); });
          this.contexts.push({ parent: make("span", element, { name: "context" }), axis: axes[n], at });
        }
      });
      app.walk.set(places);
    } catch (error) {
      if (!abort.signal.aborted) make("p", this.list, { name: "soft", text: error.message });
    }
    if (this.abort === abort) this.abort = null;
  }

  // Each token found, between its neighbors; again when more of them have come.
  refresh() {
    const layer = this.app.layer();
    for (const { parent, axis, at } of this.contexts) {
      parent.replaceChildren();
      const last = (axis === "query" ? layer.queries : layer.keys) - 1;
      for (let near = Math.max(at - AROUND, 0); near <= Math.min(at + AROUND, last); near++) {
        make("span", parent, { name: near === at ? "token hit" : "token", text: this.app.word(axis, near) ?? "" });
      }
    }
  }
}
