// The strongest cells of a head, as a list with their tokens.

import { make } from "./shared/dom.js";
import { brief, multiple, position, signedMultiple, signedWeight } from "./shared/format.js";
import { Menu } from "./menus.js";

const COUNT = 20;

export class Strongest {
  constructor(app, tools) {
    this.app = app;
    this.entries = [];
    this.cells = [];
    this.abort = null;
    this.partial = false;
    this.menu = new Menu(app, tools, "peak", "Strongest cells", "s", (panel) => this.fill(panel));
  }

  get busy() {
    return this.abort !== null;
  }

  // Another head has other cells: they are listed anew, and nobody walks through those of the last one.
  forget() {
    this.abort?.abort();
    this.abort = null;
    if (this.app.walk.places === this.cells) this.app.walk.set([]);
    if (!this.menu.open) return;
    this.menu.panel.replaceChildren();
    this.fill(this.menu.panel);
  }

  // The whole matrix has been gone through: a list that is open and was made before is made again.
  complete() {
    if (this.partial && this.menu.open) this.forget();
  }

  async fill(panel) {
    const { app } = this, abort = new AbortController();
    this.entries = [];
    this.partial = true;
    const signed = app.compare.difference;
    make("h2", panel, { text: signed ? "Largest differences" : app.compare.on ? "Strongest cells of A" : "Strongest cells" });
    const note = make("p", panel, { name: "soft", text: "…" });
    this.abort = abort;
    try {
      const { cells, exact } = await app.transport.call("strongest", { ...app.place(), count: COUNT }, abort.signal);
      if (abort.signal.aborted) return;
      const partial = "Best so far: the whole matrix has not been gone through yet.";
      this.partial = !exact;
      note.textContent = this.partial ? partial : cells.length ? `By ${signed ? "the size of A − B" : "weight"} × visible keys. n, p: next, previous.` : "Nothing stands out.";
      this.list(make("ol", panel), cells);
      if (panel.contains(document.activeElement)) this.entries[0]?.button.focus();
    } catch (error) {
      if (abort.signal.aborted) return;
      note.textContent = error.message;
    }
    this.abort = null;
  }

  list(parent, cells) {
    const { app } = this, { difference } = app.compare;
    this.cells = cells;
    this.entries = cells.map((cell, at) => {
      const button = make("button", make("li", parent), { name: "entry found-cell" }), words = make("span", button, { name: "words" });
      make("span", button, { name: "value", text: difference ? signedWeight(cell.weight, brief) : brief(cell.weight) });
      make("span", button, { name: "number", text: `${position(cell.q)} → ${position(cell.k)}` });
      make("span", button, { name: "times", text: `${(difference ? signedMultiple : multiple)(cell.weight * cell.visible)} uniform` });
      button.addEventListener("click", () => { this.menu.toggle(false); app.walk.goTo(at); });
      return { cell, button, words };
    });
    this.refresh();
    app.walk.set(this.cells, (at) => this.mark(at));
  }

  // Tokens have come.
  refresh() {
    for (const { cell, words } of this.entries) {
      words.replaceChildren();
      for (const [axis, at] of [["query", cell.q], ["key", cell.k]]) {
        const token = this.app.word(axis, at);
        if (axis === "key") make("span", words, { name: "soft", text: "→" });
        make("span", words, token === null ? { name: "soft", text: axis } : { name: "token", text: token });
      }
    }
  }

  mark(at) {
    this.entries.forEach(({ button }, n) => button.setAttribute("aria-current", String(n === at)));
    if (this.app.layout.narrow) this.menu.toggle(false); // it covers the map
    else if (this.menu.open) this.entries[at].button.focus();
  }
}
