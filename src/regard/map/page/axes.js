// The two axes as a scene: tokens where a cell has room for one, positions in round steps elsewhere.

import { position, roundStep } from "./shared/format.js";
import { fitted, widthOf } from "./scene.js";

const TICK = 5, PLACE = 40; // CSS pixels; PLACE is for a position beside a token

// `read(axis, position)` gives a token's label or null.
export function axes(view, layer, frame, theme, read) {
  return [
    { kind: "box", x: 0, y: 0, width: frame.width, height: frame.band.top, fill: theme.paper },
    { kind: "box", x: 0, y: frame.band.top, width: frame.band.left, height: frame.height - frame.band.top, fill: theme.paper },
    ...keyAxis(view, layer, frame, theme, read),
    ...queryAxis(view, layer, frame, theme, read),
    { kind: "text", x: frame.left - 8, y: frame.top - 22, text: "key →", fill: theme.soft, size: 10, anchor: "end" },
    { kind: "text", x: frame.left - 8, y: frame.top - 11, text: "query ↓", fill: theme.soft, size: 10, anchor: "end" },
    { kind: "line", x1: frame.left - 0.5, y1: frame.top - 0.5, x2: frame.right, y2: frame.top - 0.5, stroke: theme.line },
    { kind: "line", x1: frame.left - 0.5, y1: frame.top - 0.5, x2: frame.left - 0.5, y2: frame.bottom, stroke: theme.line },
  ];
}

function keyAxis(view, layer, frame, theme, read) {
  const box = view.box(), { scale } = view, bottom = frame.top;
  const x = (k) => frame.x + (k + 0.5) * scale + view.offset.x;
  const inside = (at) => at >= frame.left - 1 && at <= frame.right;
  const scene = [], spelled = frame.spelled.columns;
  if (spelled) {
    const most = frame.band.top - 28;
    for (const k of range(box.k0, box.k1, layer.keys, 1)) {
      const text = read("key", k);
      if (text === null || !inside(x(k))) continue;
      scene.push({ kind: "text", x: x(k), y: bottom - 6, text: fitted(text, most, 12), fill: theme.ink, size: 12, turn: -90 });
    }
  }
  const step = roundStep((spelled ? 60 : 84) / scale);
  for (const k of range(box.k0, box.k1, layer.keys, step)) {
    const at = x(k), text = position(k);
    if (!inside(at)) continue;
    if (!spelled) scene.push({ kind: "line", x1: at, y1: bottom - TICK, x2: at, y2: bottom, stroke: theme.soft });
    const y = spelled ? bottom - frame.band.top + 12 : bottom - 14;
    if (at - widthOf(text, 11) / 2 > frame.left - 6) scene.push({ kind: "text", x: at, y, text, fill: theme.soft, size: 11, anchor: "middle" });
  }
  return scene;
}

function queryAxis(view, layer, frame, theme, read) {
  const box = view.box(), { scale } = view, right = frame.left;
  const y = (q) => frame.y + (q + 0.5) * scale + view.offset.y;
  const inside = (at) => at >= frame.top - 1 && at <= frame.bottom;
  const scene = [], spelled = frame.spelled.rows, numbered = !spelled || frame.band.left > 100;
  if (spelled) {
    const most = frame.band.left - (numbered ? PLACE : 0) - 14;
    for (const q of range(box.q0, box.q1, layer.queries, 1)) {
      const text = read("query", q);
      if (text === null || !inside(y(q))) continue;
      scene.push({ kind: "text", x: right - 7, y: y(q), text: fitted(text, most, 12), fill: theme.ink, size: 12, anchor: "end" });
    }
  }
  const step = roundStep((spelled ? 60 : 44) / scale);
  if (!numbered) return scene;
  for (const q of range(box.q0, box.q1, layer.queries, step)) {
    const at = y(q);
    if (!inside(at)) continue;
    if (!spelled) scene.push({ kind: "line", x1: right - TICK, y1: at, x2: right, y2: at, stroke: theme.soft });
    const place = spelled ? { x: right - frame.band.left + 10, anchor: "start" } : { x: right - 9, anchor: "end" };
    scene.push({ kind: "text", ...place, y: at, text: position(q), fill: theme.soft, size: 11 });
  }
  return scene;
}

// Multiples of `step` among the positions from `low` to `high` of an axis of `length`.
function range(low, high, length, step) {
  const first = Math.max(Math.ceil((low - 1) / step) * step, 0), last = Math.min(Math.floor(high), length - 1);
  const found = [];
  for (let at = first; at <= last; at += step) found.push(at);
  return found;
}
