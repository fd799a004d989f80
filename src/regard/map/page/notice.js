// What has to be said about what is on screen: estimates and how far the exact levels are, that nobody answers, and what is
// unusual about the weights.

import { STRANGE } from "./connection.js";
import { iconButton, make } from "./shared/dom.js";

const EVERY = 700, SLOW = 4000; // milliseconds

export class Notice {
  constructor(app, stage) {
    this.app = app;
    this.root = make("div", stage, { name: "notice", role: "status" });
    this.root.hidden = true;
    this.hatch = make("span", this.root, { name: "hatch", "aria-hidden": "true" });
    this.text = make("span", this.root);
    this.bar = make("progress", this.root, { max: "1", "aria-label": "Exact levels" });
    this.button = make("button", this.root, { name: "again", text: "Reconnect" });
    this.button.addEventListener("click", () => app.connection.reconnect());
    this.corner = make("div", stage, { name: "estimate-corner", "aria-hidden": "true" });
    this.corner.hidden = true;
    for (const text of app.info.notes ?? []) this.note(text);
    this.estimate = false;
    this.state = this.failed = "";
    this.part = 0;
    this.timer = 0;
    this.turn = 0;
    this.ready = new Set();
  }

  get exact() {
    return this.state === "exact";
  }

  // The head has changed: its progress is followed until it is exact. Asking is what starts the work.
  follow() {
    clearTimeout(this.timer);
    this.state = this.failed = "";
    this.part = 0;
    this.ready = new Set(); // which of the heads that are shown are exact
    this.poll(++this.turn);
  }

  async poll(turn) {
    const { app } = this, places = app.places();
    let wait = EVERY;
    try {
      const found = await Promise.all(places.map((place) => app.transport.call("progress", place)));
      if (turn !== this.turn) return;
      this.failed = found.map(({ error }) => error).find(Boolean) ?? "";
      found.forEach(({ state }, n) => {
        if (state !== "exact" || this.ready.has(n)) return;
        this.ready.add(n);
        app.store.expectExact(places[n]);
        app.ask();
        if (n === 0) app.strongest.complete();
      });
      this.state = found.every(({ state }) => state === "exact") ? "exact" : found[0].state === "exact" ? "building" : found[0].state;
      this.part = found.reduce((sum, { done, total }) => sum + (total ? done / total : 0), 0) / found.length;
    } catch {
      wait = SLOW;
    }
    if (turn !== this.turn) return;
    app.invalidate();
    if (!this.exact && !this.failed) this.timer = setTimeout(() => this.poll(turn), wait);
  }

  note(text) {
    const note = make("p", null, { name: "note", role: "note" });
    this.app.stage.parentElement.before(note);
    make("span", note, { text: this.app.label(text) });
    iconButton("close", note, "Close this note").addEventListener("click", () => note.remove());
  }

  draw({ estimate }) {
    const { store, connection } = this.app, trouble = connection.lost || store.trouble;
    this.estimate = estimate;
    this.root.hidden = !estimate && !trouble;
    this.corner.hidden = !estimate;
    this.root.classList.toggle("trouble", Boolean(trouble));
    this.hatch.hidden = this.bar.hidden = Boolean(trouble);
    const part = this.part > 0 ? `, ${Math.floor(100 * this.part)} % exact` : "", percent = this.failed ? `; exact: ${this.failed}` : part;
    const told = connection.lost ? (connection.trying ? "Reconnecting…" : connection.lost) : `No answer, trying again: ${trouble}`;
    const text = trouble ? told : `Estimate${percent}`;
    this.button.hidden = !connection.lost || connection.lost === STRANGE || connection.trying;
    if (this.text.textContent !== text) this.text.textContent = text;
    this.bar.value = this.part;
  }

  end() {
    this.turn++;
    clearTimeout(this.timer);
  }
}
