// The map in a notebook: anywidget calls render; questions and tiles travel over the widget's comm.

import { make } from "./shared/dom.js";
import { start } from "./start.js";
import { commTransport } from "./transport.js";

function memory() {
  let hash = "";
  const keep = (now) => { hash = now; };
  return { read: () => hash, replace: keep, push: keep, title() {}, reload() {}, listen: () => () => {} };
}

async function render({ model, el }) {
  const root = make("div", el, { name: "regard-map framed" });
  root.style.height = `${model.get("height") || 640}px`;
  const { app } = await start(root, commTransport(model), memory());
  return () => app.end();
}

export default { render };
