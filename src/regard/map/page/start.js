// The way into the map, for a page of its own and for a notebook.

import { App } from "./app.js";
import { make } from "./shared/dom.js";

// `route`: {read(), replace(hash), push(hash), listen(call), title(text)} keeps the address, or nothing at all; `ear` is where
// keys are heard, if not the map alone.
export async function start(root, transport, route) {
  const wait = make("p", root, { name: "wait", text: "Opening the map…" });
  try {
    const info = await transport.call("info", {});
    wait.remove();
    const app = new App(root, transport, info, route);
    return { app, map: handle(app) };
  } catch (error) {
    wait.textContent = `The map could not be opened: ${error.message}`;
    throw error;
  }
}

// What tests and people at the console can ask.
function handle(app) {
  return {
    get idle() { return app.idle; },
    get exact() { return app.notice.exact; },
    get info() { return app.info; },
    get counts() { return { ...app.store.counts, draw: app.plot.spent }; },
    view() {
      const { q, k, scale } = app.view.place(), layer = app.layer(), level = app.plot.level(layer), { offset } = app.view;
      const { low, high } = app.range.ends(), palette = app.look.palette();
      return {
        ...app.place(), q, k, scale, level, offset, ratio: app.plot.ratio, estimate: app.notice.estimate, box: app.view.box(), free: app.view.free(), frame: app.frame(), low, high, other: app.compare.other, mode: app.state.get("mode"), panes: app.layout.panes,
        statistic: app.state.get("statistic"), row: app.state.get("row"), column: app.state.get("column"), colors: palette.stops, theme: app.look.theme(),
      };
    },
    goto(place) { app.view.moveTo({ ...app.view.place(), ...place }, { fly: false }); },
    home() { app.view.goHome({ fly: false }); },
    set(patch) { app.state.set(patch); },
    async whenIdle() {
      while (!app.idle) await new Promise((done) => setTimeout(done, 20));
    },
  };
}
