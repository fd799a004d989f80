// The small windows of the toolbar: strongest cells, saving, keys. One is open at a time.

import { iconButton, make } from "./dom.js";
import { multiple, position } from "./format.js";

const STRONGEST = 20;

export class Menu {
  constructor(app, tools, name, label, key, fill) {
    this.app = app;
    this.fill = fill;
    this.button = iconButton(name, tools, label, key);
    this.button.setAttribute("aria-expanded", "false");
    this.panel = make("div", app.stage, { name: "menu", role: "dialog", "aria-label": label, tabindex: "-1" });
    this.panel.hidden = true;
    this.button.addEventListener("click", () => this.toggle());
    app.root.addEventListener("pointerdown", (event) => {
      if (!this.panel.contains(event.target) && !this.button.contains(event.target)) this.toggle(false, false);
    });
  }

  get open() {
    return !this.panel.hidden;
  }

  toggle(open = !this.open, focus = true) {
    if (open === this.open) return;
    this.panel.hidden = !open;
    this.button.setAttribute("aria-expanded", String(open));
    if (!open) return focus && this.app.plot.canvas.focus();
    this.app.closeMenus(this);
    this.panel.replaceChildren();
    this.panel.focus();
    this.fill(this.panel, this);
    this.panel.querySelector("button")?.focus();
  }
}

export class Strongest {
  constructor(app, tools) {
    this.app = app;
    this.pending = false;
    this.menu = new Menu(app, tools, "peak", "Strongest cells", "s", (panel) => this.fill(panel));
  }

  get busy() {
    return this.pending;
  }

  async fill(panel) {
    const { app } = this;
    make("h2", panel, { text: "Strongest cells" });
    const note = make("p", panel, { name: "soft", text: "…" });
    this.pending = true;
    try {
      const { cells, exact } = await app.transport.call("strongest", { ...app.place(), count: STRONGEST });
      const partial = "Best so far: the whole matrix has not been gone through yet.";
      note.textContent = exact === false ? partial : cells.length ? "By weight × visible keys; n, p: next, previous." : "Nothing stands out.";
      const list = make("ol", panel), walk = cells.map((cell) => ({ cell }));
      cells.forEach((cell, at) => {
        const button = make("button", make("li", list), { name: "entry" });
        make("span", button, { name: "number", text: `${position(cell.q)} → ${position(cell.k)}` });
        const times = cell.visible ? multiple(cell.weight * cell.visible) : "";
        make("span", button, { name: "soft", text: times });
        make("span", button, { name: "value", text: Number(cell.weight.toPrecision(3)).toString() });
        button.addEventListener("click", () => { this.menu.toggle(false); app.search.step(0, { list: walk, at }); });
      });
      if (panel.contains(document.activeElement)) list.querySelector("button")?.focus();
    } catch (error) {
      note.textContent = error.message;
    }
    this.pending = false;
  }
}

const KEYS = [
  ["drag, wheel, pinch, double-click", "move and zoom"],
  ["click", "pin the query and the key of a cell; click an axis to pin one of them"],
  ["← ↑ → ↓", "move"],
  ["Shift + arrows", "move the pinned cell, or pin the one in the middle"],
  ["Enter", "pin the cell in the middle"],
  ["+ −", "zoom"],
  ["0", "the whole matrix"],
  ["1", "one pixel for each weight"],
  ["f  or  /", "find a token"],
  ["g", "go to query, key"],
  ["s", "strongest cells"],
  ["n  p", "next and previous of what was found"],
  ["h", "layers and heads"],
  ["[  ]", "previous and next head"],
  ["{  }", "previous and next layer"],
  ["m", "largest or mean"],
  ["l", "log or linear colors"],
  ["c", "next colors"],
  ["<  >", "lower and raise the threshold"],
  ["t", "light or dark"],
  ["e  E", "save as PNG, as SVG"],
  ["Escape", "close, then unpin"],
];

export function help(panel) {
  panel.classList.add("help");
  make("h2", panel, { text: "Keys and pointer" });
  const table = make("dl", panel);
  for (const [keys, does] of KEYS) {
    make("dt", table, { text: keys });
    make("dd", table, { text: does });
  }
}
