// The tokens as running text beside the map, colored by what the pinned query reads or by who reads the pinned key. Only
// the chunks on screen have words; the others keep their height, so that a text of any length can be scrolled.

import { iconButton, make, segmented } from "./shared/dom.js";
import { multiple, position, signedMultiple, textLabel } from "./shared/format.js";
import { CHUNK } from "./tokens.js";

const ROOM = 1360, WIDE = 320; // CSS pixels of the page from which the panel is open; of the panel
const LINE = 21, LETTERS = 7; // CSS pixels of a line, and of a letter, until a chunk has been measured
const FAINT = 0.3; // opacity of what the pinned query does not see

export class TextPanel {
  constructor(app, parent) {
    this.app = app;
    this.root = make("aside", parent, { name: "reader", "aria-label": "The text" });
    this.root.hidden = true;
    this.root.id = "regard-text";
    const top = make("div", this.root, { name: "reader-top" });
    const modes = [
      { value: "reads", text: "reads", title: "Colors: what the pinned query reads. Click a word to pin it as the query." },
      { value: "read", text: "is read by", title: "Colors: which queries read the pinned key. Click a word to pin it as the key." },
    ];
    this.press = segmented(top, "What the colors of the text show", modes, (mode) => app.state.set({ text: mode }));
    iconButton("close", top, "Close the text", "x").addEventListener("click", () => this.toggle(false));
    this.hint = make("p", this.root, { name: "soft hint" });
    this.list = make("div", this.root, { name: "reader-list", tabindex: "0" });
    this.list.addEventListener("click", (event) => this.click(event));
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.seen = new IntersectionObserver((entries) => this.scrolled(entries), { root: this.list, rootMargin: "150px" });
    this.wanted = null; // open or closed by a person, or as there is room
    this.values = new Map();
    this.pending = this.unseen = 0; // requests; chunks of which the browser has not said yet whether they are on screen
    this.of = this.target = "";
  }

  get open() { return !this.root.hidden; }
  get busy() { return this.pending > 0 || this.unseen > 0; }
  get mode() { return this.app.state.get("text"); }
  get has() { return this.app.tokens.has(this.app.state.get("layer"), this.axis); }

  // The axis whose tokens are the text: keys that are read, or queries that read.
  get axis() { return this.mode === "reads" ? "key" : "query"; }

  // The axis that a click pins: where both have the same text, the one whose row or column gives the colors.
  get pins() {
    if (!this.app.layer().same_text) return this.axis;
    return this.mode === "reads" ? "query" : "key";
  }

  get length() { const layer = this.app.layer(); return this.axis === "query" ? layer.queries : layer.keys; }
  get pinned() { return this.app.state.get(this.mode === "reads" ? "row" : "column"); }

  toggle(open = !this.open) {
    this.wanted = open;
    this.adapt();
  }

  // Open if a person wants it, or if nobody has said and there is room.
  adapt() {
    const open = this.has && (this.wanted ?? this.app.root.clientWidth >= ROOM);
    if (this.root.hidden !== open) return;
    this.root.hidden = !open;
    this.app.textButton.setAttribute("aria-expanded", String(open));
    if (open) this.change();
  }

  // Another text, another pin or another mode.
  change() {
    const { app } = this;
    app.textButton.hidden = !["query", "key"].some((axis) => app.tokens.has(app.state.get("layer"), axis));
    if (!this.open) return;
    this.press(this.mode);
    const { layer, batch } = app.place(), of = [layer, batch, this.axis].join();
    if (of !== this.of) this.build();
    this.of = of;
    this.values.clear();
    this.describe();
    for (const chunk of this.chunks) if (chunk.shown) this.fill(chunk);
    this.follow(this.pins === "query" ? app.state.get("row") : app.state.get("column"));
  }

  // One line above the text: what its colors are.
  describe() {
    const reads = this.mode === "reads", who = reads ? "query" : "key";
    const click = this.pins === who ? `Click a word to see ${reads ? "what it reads" : "who reads it"}.` : `Pin a ${who} on the map to color this text.`;
    const word = this.pinned === null ? null : this.app.word(who, this.pinned), named = `${position(this.pinned ?? 0)}${word === null ? "" : ` ${word}`}`;
    const { compare } = this.app, of = compare.difference ? ", in A less in B" : compare.on ? " in A" : "";
    this.hint.textContent = this.pinned === null ? click : reads ? `What query ${named} reads${of}` : `Who reads key ${named}${of}`;
  }

  build() {
    this.seen.disconnect();
    this.list.replaceChildren();
    this.chunks = [];
    for (let from = 0; from < this.length; from += CHUNK) {
      const to = Math.min(from + CHUNK, this.length), element = make("div", this.list, { name: "chunk" });
      const lines = Math.ceil(((to - from) * 5.5 * LETTERS) / (WIDE - 60));
      element.style.height = `${lines * LINE}px`;
      const chunk = { from, to, element, shown: null, drawn: null };
      element.chunk = chunk;
      this.chunks.push(chunk);
      this.seen.observe(element);
    }
    this.unseen = this.chunks.length;
  }

  scrolled(entries) {
    for (const { target, isIntersecting } of entries) {
      const { chunk } = target;
      if (!this.chunks.includes(chunk)) continue; // of the text before
      if (chunk.shown === null) this.unseen--;
      chunk.shown = isIntersecting;
      if (isIntersecting) this.fill(chunk);
      else if (chunk.drawn) {
        target.style.height = `${target.offsetHeight}px`;
        target.replaceChildren();
        chunk.drawn = null;
      }
    }
  }

  // The words of a chunk, once, and their colors.
  async fill(chunk) {
    const { app } = this, words = app.tokens.texts(app.place(), this.axis, chunk.from);
    if (!words) return; // `refresh` comes again
    if (!chunk.drawn) {
      chunk.element.replaceChildren();
      make("span", chunk.element, { name: "at", text: position(chunk.from) });
      chunk.drawn = words.map((text, n) => make("span", chunk.element, { name: "word", text: textLabel(text), "data-at": chunk.from + n }));
      chunk.element.style.height = "auto";
    }
    this.paint(chunk);
    if (this.pinned === null || this.values.has(chunk.from)) return;
    const { values } = this, row = this.mode === "reads", q = this.pinned, { from, to } = chunk;
    values.set(from, null);
    this.pending++;
    try {
      const found = await app.transport.call(row ? "row" : "column", { ...app.place(), [row ? "q" : "k"]: q, from, to, bins: to - from });
      values.set(from, found.max);
    } catch {
      values.delete(from);
    }
    this.pending--;
    if (values === this.values && row === (this.mode === "reads") && q === this.pinned) this.paint(chunk);
  }

  paint(chunk) {
    if (!chunk.drawn) return;
    const { app } = this, values = this.values.get(chunk.from), palette = app.look.palette(), said = palette.signed ? signedMultiple : multiple;
    const marked = this.pins === "query" ? app.state.get("row") : app.state.get("column");
    const other = app.layer().same_text ? (this.pins === "query" ? app.state.get("column") : app.state.get("row")) : null;
    chunk.drawn.forEach((word, n) => {
      const value = values?.[n], at = chunk.from + n, color = value ? palette.tint(value) : null;
      word.style.backgroundColor = color ? `rgb(${color.join(" ")})` : "";
      word.style.color = color ? (bright(color) ? "#14171b" : "#ffffff") : "";
      word.style.opacity = value === null ? FAINT : "";
      word.title = values ? (value === null ? `${position(at)}: hidden` : `${position(at)}: ${said(value)} uniform`) : position(at);
      word.classList.toggle("pinned", at === marked);
      word.classList.toggle("other", at === other);
    });
  }

  // Tokens have come, or the colors have changed.
  refresh() {
    if (!this.open) return;
    this.describe();
    for (const chunk of this.chunks) if (chunk.shown) this.fill(chunk);
  }

  // The part of the text that the map shows comes into sight, unless it shows all of it or a person is reading here.
  moved() {
    if (!this.open || this.root.matches(":hover")) return;
    const { k0, k1, q0, q1 } = this.app.view.free(), [low, high] = this.axis === "key" ? [k0, k1] : [q0, q1];
    if (high - low < this.length) this.follow(Math.round((low + high) / 2));
  }

  follow(at) {
    if (at === null || at < 0 || at >= this.length) return;
    const { element, from, to, drawn } = this.chunks[Math.floor(at / CHUNK)], { list } = this;
    const word = drawn?.[at - from], top = word ? word.offsetTop : element.offsetTop + (element.offsetHeight * (at - from)) / (to - from);
    if (word && top >= list.scrollTop && top + LINE <= list.scrollTop + list.clientHeight) return;
    list.scrollTop = top - list.clientHeight / 2;
  }

  click(event) {
    const at = event.target.closest(".word")?.dataset.at;
    if (at !== undefined) this.pin(Number(at));
  }

  pin(at) {
    const { row, column } = this.app.state.values, query = this.pins === "query";
    this.app.acts.pin(query ? at : row, query ? column : at);
    this.app.view.reveal(query ? at : null, query ? null : at);
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || event.shiftKey || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    const now = this.pins === "query" ? this.app.state.get("row") : this.app.state.get("column");
    this.pin(Math.min(Math.max((now ?? -1) + by, 0), this.length - 1));
  }

  end() {
    this.seen.disconnect();
  }
}

const bright = ([red, green, blue]) => 0.299 * red + 0.587 * green + 0.114 * blue > 140;
