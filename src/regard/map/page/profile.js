// The profile of a pinned row or column along the edge of the map, on the scale of the colors.

import { ticks } from "./legend.js";
import { widthOf } from "./scene.js";
import { debounce } from "./shared/state.js";

const BIN = 2, APART = 14; // CSS pixels

export class Profile {
  // `place()`: of the head whose row or column it is, or null.
  constructor(app, axis, place, told) {
    this.app = app;
    this.place = place;
    this.axis = axis;
    this.row = axis === "row";
    this.told = told;
    this.found = null;
    this.failed = "";
    this.abort = null;
    this.again = debounce(120, () => this.load());
  }

  get pinned() {
    return this.app.state.get(this.axis);
  }

  get busy() {
    return this.again.busy() || this.abort !== null;
  }

  clear() {
    this.found = null;
    this.failed = "";
    this.again.cancel();
    this.abort?.abort();
    this.abort = null;
  }

  // The part of the row or column that is on screen.
  part() {
    const box = this.app.view.box(), layer = this.app.layer();
    const [low, high, length] = this.row ? [box.k0, box.k1, layer.keys] : [box.q0, box.q1, layer.queries];
    const from = Math.min(Math.max(Math.floor(low), 0), length - 1), to = Math.max(Math.min(Math.ceil(high), length), from + 1);
    const bins = Math.max(Math.min(Math.floor(((to - from) * this.app.view.scale) / BIN), to - from, 2048), 1);
    return { from, to, bins };
  }

  async load() {
    const place = this.place();
    if (this.pinned === null || !place) return;
    this.abort?.abort();
    const abort = new AbortController(), part = this.part();
    this.abort = abort;
    try {
      const body = { ...place, [this.row ? "q" : "k"]: this.pinned, ...part };
      const found = await this.app.transport.call(this.axis, body, abort.signal);
      if (abort.signal.aborted) return;
      this.found = { ...found, ...part };
      this.failed = "";
    } catch (error) {
      if (abort.signal.aborted) return;
      this.failed = error.message;
    }
    this.abort = null;
    this.told();
    this.app.invalidate();
  }

  // Beside the matrix, away from it: a row's profile below, a column's to the right; at the end of what can be seen where
  // the matrix goes on.
  scene(frame, theme) {
    if (this.pinned === null) return [];
    const { view } = this.app, along = this.row ? frame.x + view.offset.x : frame.y + view.offset.y;
    const { start, end, base, high } = this.room(frame), turned = (points) => (this.row ? points : points.map(([a, b]) => [b, a])), scene = [];
    const rest = this.tip(this.app.look.palette(), 0, base, high);
    if (this.found) {
      const { from, to, bins } = this.found, values = this.found[this.app.state.get("statistic")];
      const palette = this.app.look.palette(), size = (to - from) / bins, points = [];
      values.forEach((value, n) => {
        const tip = this.tip(palette, value ?? 0, base, high);
        const first = Math.max(along + (from + n * size) * view.scale, start), last = Math.min(along + (from + (n + 1) * size) * view.scale, end);
        if (last > first) points.push([first, tip], [last, tip]);
      });
      if (points.length) {
        const closed = [[points[0][0], rest], ...points, [points[points.length - 1][0], rest]];
        scene.push({ kind: "path", points: turned(closed), fill: theme.mark });
      }
    }
    const [[x1, y1], [x2, y2]] = turned([[start, rest], [end, rest]]);
    return [...scene, { kind: "line", x1, y1, x2, y2, stroke: theme.mark, opacity: 0.5 }];
  }

  // Where a multiple of uniform ends: outward from the matrix, but of a difference up or to the right of the middle if A has more.
  tip(palette, multiple, base, high) {
    const part = palette.height(multiple);
    return base + (palette.signed && this.row ? 1 - part : part) * high;
  }

  // Where it starts and ends along the matrix, where it stands beside it, and how high it is.
  room(frame) {
    const [start, end, base] = this.row ? [frame.left, frame.right, frame.bottom + 1] : [frame.top, frame.bottom, frame.right + 1];
    return { start, end, base, high: this.app.layout.strip - 6 };
  }

  // Its scale, that of the colors: a line at the multiples that have room, from the matrix outward.
  scale(frame, theme) {
    if (this.pinned === null) return [];
    const { start, end, base, high } = this.room(frame);
    const palette = this.app.look.palette(), marks = ticks(palette, high, APART), scene = [];
    for (const { part, text, value } of marks) {
      const at = this.tip(palette, palette.signed ? value : 2 ** value, base, high);
      if (part <= 0.02 && !palette.signed) continue;
      if (this.row) {
        scene.push({ kind: "line", x1: start, y1: at, x2: end, y2: at, stroke: theme.soft, opacity: 0.4, dash: [2, 3] });
        scene.push({ kind: "text", x: start - 6, y: at, text, fill: theme.soft, size: 9, anchor: "end" });
      } else {
        scene.push({ kind: "line", x1: at, y1: start, x2: at, y2: end, stroke: theme.soft, opacity: 0.4, dash: [2, 3] });
        if (widthOf(text, 9) <= start - 8) scene.push({ kind: "text", x: at, y: start - 6, text, fill: theme.soft, size: 9, turn: -90 });
      }
    }
    return scene;
  }

  // Lines along both sides of the pinned row or column, off it where it is thin.
  marks(frame, theme) {
    if (this.pinned === null) return [];
    const { scale, offset } = this.app.view;
    const low = (this.row ? frame.y + offset.y : frame.x + offset.x) + this.pinned * scale, off = scale < 4 ? 2 : 0;
    const [start, end] = this.row ? [frame.top, frame.bottom] : [frame.left, frame.right];
    const line = (at) => (this.row
      ? { kind: "line", x1: frame.left - 6, y1: at, x2: frame.right, y2: at, stroke: theme.mark }
      : { kind: "line", x1: at, y1: frame.top - 6, x2: at, y2: frame.bottom, stroke: theme.mark });
    return [low - off, low + scale + off].filter((at) => at >= start && at <= end).map((at) => line(Math.floor(at) + 0.5)); // whole pixels
  }
}
