// The address follows what is shown; what a person may want to come back from enters the history.

import * as address from "./address.js";

export class Trail {
  constructor(app, route) {
    this.app = app;
    this.route = route;
    this.leaping = false;
    this.unlisten = route.listen(() => this.follow());
  }

  hash() {
    const { state, view } = this.app;
    return address.write({ state: state.values, at: view.atHome ? null : view.goal || view.place() });
  }

  keep() {
    if (!this.leaping) this.route.replace(this.hash());
  }

  // The place before the act stays in the history, unless the act leads nowhere else.
  jump(act) {
    this.keep();
    const before = this.hash();
    this.leaping = true;
    act();
    this.leaping = false;
    if (this.hash() !== before) this.route.push(this.hash());
  }

  follow() {
    const { app } = this, { state, at } = address.read(this.route.read(), app.info);
    app.state.set(state);
    if (at) app.view.moveTo(at, { fly: false });
    else app.view.goHome({ fly: false });
  }
}
