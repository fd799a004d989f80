// The small windows of the toolbar: strongest cells, saving, keys. One is open at a time.

import { iconButton, make } from "./shared/dom.js";

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
    this.app.acts.closeMenus(this);
    this.panel.replaceChildren();
    this.panel.focus();
    this.fill(this.panel, this);
    this.panel.querySelector("button")?.focus();
  }
}

const KEYS = [
  ["drag, wheel, pinch", "move and zoom"],
  ["double-click", "zoom in, with Shift out"],
  ["click", "pin the query and the key of a cell; click an axis to pin one of them"],
  ["← ↑ → ↓", "move"],
  ["Shift + arrows", "move the pinned cell, or pin the one in the middle"],
  ["Enter", "pin the cell in the middle"],
  ["+ −", "zoom"],
  ["0", "the whole matrix"],
  ["1", "one pixel for each weight"],
  ["f  or  /", "find words"],
  ["g", "go to query, key"],
  ["s", "strongest cells"],
  ["n  p", "next and previous of what was listed last"],
  ["h", "layers and heads"],
  ["[  ]", "previous and next head, round and round"],
  ["{  }", "previous and next layer"],
  ["b", "compare with another head, B"],
  ["d  w", "side by side or A − B; exchange A and B"],
  [",  .", "previous and next head of B"],
  ["m", "largest or mean"],
  ["l", "log or linear colors"],
  ["c", "next colors"],
  ["<  >", "lower and raise the threshold"],
  ["x", "the text beside the map: click a word to pin it, ← → go on"],
  ["y", "copy the address of this view"],
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
