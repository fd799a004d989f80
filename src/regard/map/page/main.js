// The page of the local server.

import { start } from "./start.js";
import { httpTransport } from "./transport.js";

const addressOf = (hash) => (hash === "#" ? location.pathname + location.search : hash);

const route = {
  ear: document,
  read: () => location.hash,
  replace: (hash) => history.replaceState(null, "", addressOf(hash)),
  push: (hash) => history.pushState(null, "", addressOf(hash)),
  link: () => location.href,
  reload: () => location.reload(),
  title: (text) => { document.title = text; },
  listen(call) {
    window.addEventListener("popstate", call);
    return () => window.removeEventListener("popstate", call);
  },
};

const token = document.querySelector('meta[name="regard-token"]')?.content || "";
const { map } = await start(document.getElementById("map"), httpTransport(token), route);
window.regardMap = map;
