// Buttons that step a field of the state: start over, back, step, play and pause. Where people asked for less motion, there is no play.
//
//   const view = player(row(stage), state, "tiles", { last: () => 4, still, what: "tile" });   view.update() in every frame

import { button } from "./controls.js";
import { make } from "./shared/dom.js";

const WAIT = 1100; // milliseconds of a step

export function player(parent, state, field, { first = 0, last, still, what }) {
  const group = make("div", parent, { name: "player", role: "group", "aria-label": `Go through it ${what} by ${what}` });
  const at = () => Math.min(Math.max(state.get(field), first), last());
  const go = (to) => state.set({ [field]: Math.min(Math.max(to, first), last()) });
  let timer = 0;
  function stop() {
    clearInterval(timer);
    timer = 0;
    show();
  }
  function tick() {
    if (!group.isConnected || still() || at() >= last()) return stop();
    go(at() + 1);
    if (at() >= last()) stop();
  }
  const by = (change) => () => { stop(); change(); };
  const over = button(group, "start over", by(() => go(first)));
  const back = button(group, "back", by(() => go(at() - 1)));
  const next = button(group, `next ${what}`, by(() => go(at() + 1)), { name: "strong" });
  const play = button(group, "play", () => {
    if (timer) return stop();
    if (at() >= last()) go(first);
    timer = setInterval(tick, WAIT);
    show();
  });
  function show() {
    const text = timer ? "pause" : "play";
    if (play.textContent !== text) play.textContent = text;
    play.hidden = still();
    over.disabled = back.disabled = at() <= first;
    next.disabled = at() >= last();
  }
  show();
  return { update: show };
}
