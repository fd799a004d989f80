// Whether somebody answers; if not, what a person can do about it.

import { GONE, STRANGER } from "./transport.js";

export const STRANGE = "The server was started again and has another token: open the address that it printed.";

const TEXTS = {
  [GONE]: "The server does not answer. If it was stopped, start it again with the same command and --port, then reconnect.",
  [STRANGER]: STRANGE,
};

export class Connection {
  constructor(app) {
    this.app = app;
    this.lost = "";
    this.trying = false;
  }

  // After each request: its error, or null.
  told(error) {
    const lost = (error && TEXTS[error.status]) ?? (error ? this.lost : "");
    if (lost === this.lost) return;
    this.lost = lost;
    this.app.invalidate();
  }

  // Ask again at once; a server that shows something else now needs a fresh page.
  async reconnect() {
    const { app } = this;
    if (this.trying) return;
    this.trying = true;
    app.invalidate();
    try {
      const { id } = await app.transport.call("info", {});
      if (id !== app.info.id) return app.route.reload();
      app.notice.follow();
      app.ask();
      app.store.again();
      for (const part of app.profiles) part.load();
      app.card.change();
    } catch {
      app.announce(this.lost);
    } finally {
      this.trying = false;
      app.invalidate();
    }
  }
}
