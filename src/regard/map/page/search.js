// One box for "where": two numbers are a query and a key, one number either, anything else is looked for in the text that the
// tokens make.

import { icon, make } from "./shared/dom.js";
import { count, position } from "./shared/format.js";
import { debounce } from "./shared/state.js";

const LIMIT = 50, AROUND = 3;

const NUMBER = /^(\d+|\d{1,3}(?:[,._'’\u00a0\u202f]\d{3})+)$/; // 12345, or 12,345

const numberOf = (text) => (NUMBER.test(text.trim()) ? Number(text.replace(/\D/g, "")) : null);

// Every way to read a text as two numbers; "12,345" is also one.
function pairsOf(text) {
  const found = [];
  for (const { 0: sign, index } of text.trim().matchAll(/\s*[,;:→×]\s*|\s+/g)) {
    const whole = text.trim(), q = numberOf(whole.slice(0, index)), k = numberOf(whole.slice(index + sign.length));
    if (q !== null && k !== null) found.push({ q, k });
  }
  return found;
}

const line = (axis, at) => (axis === "query" ? { q: at, k: null } : { q: null, k: at });

export class Search {
  constructor(app, parent) {
    this.app = app;
    this.form = make("form", parent, { name: "search", role: "search" });
    icon("search", this.form);
    this.input = make("input", this.form, {
      type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", placeholder: "Find words, or go to query, key",
      "aria-label": "Find words, or go to a query and a key", "aria-expanded": "false", "aria-controls": "regard-found",
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
    const single = numberOf(text), pairs = pairsOf(text);
    if (single !== null) for (const axis of ["query", "key"]) this.offerPosition(axis, single, pairs.length === 0);
    for (const { q, k } of pairs) this.offerCell(q, k, single === null);
    if (!pairs.length || single !== null) await this.find(text);
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

  // `told`: whether a place outside is worth a word, or there is another way to read the number.
  within(axis, at, told) {
    const layer = this.app.layer(), length = axis === "query" ? layer.queries : layer.keys;
    if (at < length) return true;
    if (told) make("p", this.list, { name: "soft", text: `There is no ${axis} ${position(at)}: the last is ${position(length - 1)}.` });
    return false;
  }

  offerCell(q, k, told) {
    if (!this.within("query", q, told) || !this.within("key", k, told)) return;
    this.offer([["", `Go to query ${position(q)}, key ${position(k)}`]], () => this.app.acts.goTo({ q, k }));
  }

  offerPosition(axis, at, told) {
    if (!this.within(axis, at, told)) return;
    this.offer([["", `Go to ${axis} ${position(at)}`]], () => this.app.acts.goTo(line(axis, at)));
  }

  async find(text) {
    const { app } = this, { layer, batch } = app.place(), abort = new AbortController();
    const axes = ["key", "query"].filter((axis) => app.tokens.has(layer, axis));
    if (!axes.length) return make("p", this.list, { name: "soft", text: "This map has no tokens; go to a position instead." });
    this.abort = abort;
    try {
      const found = await Promise.all(axes.map((axis) => app.transport.call("find", { layer, batch, axis, text, limit: LIMIT }, abort.signal)));
      const places = [];
      found.forEach(({ positions, counts, total }, n) => {
        if (!positions.length) return;
        const more = total > positions.length ? `, the first ${positions.length}` : "";
        make("p", this.list, { name: "soft", text: `${count(total, "place", "places")} among the ${axes[n] === "key" ? "keys" : "queries"}${more}` });
        for (const [nth, at] of positions.entries()) {
          const place = places.push(line(axes[n], at)) - 1;
          const element = this.offer([["number", position(at)]], () => { app.walk.set(places); app.walk.goTo(place); });
          this.contexts.push({ parent: make("span", element, { name: "context" }), axis: axes[n], at, count: counts[nth] });
        }
      });
      app.walk.set(places);
    } catch (error) {
      if (!abort.signal.aborted) make("p", this.list, { name: "soft", text: error.message });
    }
    if (this.abort === abort) this.abort = null;
  }

  // The tokens found, between their neighbors; again when more of them have come.
  refresh() {
    const layer = this.app.layer();
    for (const { parent, axis, at, count: found } of this.contexts) {
      parent.replaceChildren();
      const last = (axis === "query" ? layer.queries : layer.keys) - 1;
      for (let near = Math.max(at - AROUND, 0); near <= Math.min(at + found - 1 + AROUND, last); near++) {
        make("span", parent, { name: near >= at && near < at + found ? "token hit" : "token", text: this.app.word(axis, near) ?? "" });
      }
    }
  }
}
