// Where things are on the stage: the bands of the axes, the strips of the profiles, the card. What they leave is free for
// the map, and the whole matrix is shown within it.

import { finestOf, sideOf } from "./geometry.js";

const NARROW = 760; // CSS pixels, as in map.css; so are the sizes below
const ROOM = 14; // that a cell needs before its token is written
const LARGEST_CELL = 96;
const THINNEST = 48; // of the shorter side of a matrix that is very long in the other direction
const LEAST = 50;
const TITLE = 24, GAP = 10, ROOMY = 520; // of two heads side by side: the line above each, what is between them, and where there is room for wide axes

// `number` and `token`: left and top band of the axes; `strip`: beside the matrix, for a profile; `edge`: what stays
// empty, below and to the right; `card`: what the card takes of the right, on narrow screens of the bottom.
const SIZES = {
  wide: { number: [60, 30], token: [132, 100], strip: 52, edge: { right: 64, bottom: 12 }, card: { right: 296, bottom: 12 } },
  narrow: { number: [52, 28], token: [76, 72], strip: 36, edge: { right: 8, bottom: 54 }, card: { right: 8, part: 0.4 } },
};

export class Layout {
  // `shown()` gives {layer, row, column, beside}: what is drawn, what is pinned, and whether there are two panes.
  constructor(shown) {
    this.shown = shown;
    this.resize(LEAST, LEAST);
  }

  // The stage is one pane, or two of one size; all that follows is about one pane, and its pixels count from its corner.
  resize(width, height) {
    Object.assign(this, { narrow: width <= NARROW, split: Boolean(this.shown()?.beside) });
    this.sizes = SIZES[this.narrow ? "narrow" : "wide"];
    this.panes = [{ x: 0, y: 0, width, height }];
    if (this.split) this.panes = this.divide(width, height);
    Object.assign(this, { width: this.panes[0].width, height: this.panes[0].height });
    if (this.split && this.width < ROOMY) this.sizes = SIZES.narrow;
  }

  // Two panes beside each other or one above the other, whichever leaves more room for a square; without the card and the buttons.
  divide(width, height) {
    const kept = this.kept(this.carded, false), wide = width - (this.narrow ? 0 : kept.right), high = height - (this.narrow ? kept.bottom : 0);
    const across = { width: Math.max(Math.floor((wide - GAP) / 2), LEAST), height: Math.max(high - TITLE, LEAST) };
    const down = { width: wide, height: Math.max(Math.floor((high - GAP) / 2) - TITLE, LEAST) };
    const least = (pane) => Math.min(pane.width - SIZES.narrow.number[0], pane.height - SIZES.narrow.number[1]);
    if (least(across) >= least(down)) return [{ x: 0, y: TITLE, ...across }, { x: across.width + GAP, y: TITLE, ...across }];
    return [{ x: 0, y: TITLE, ...down }, { x: 0, y: down.height + GAP + 2 * TITLE, ...down }];
  }

  // The pane that a point of the stage lies in, or the nearest.
  paneAt(x, y) {
    const far = (pane) => Math.max(pane.x - x, x - pane.x - pane.width, 0) + Math.max(pane.y - y, y - pane.y - pane.height, 0);
    return this.panes.reduce((near, pane) => (far(pane) < far(near) ? pane : near));
  }

  get strip() {
    return this.sizes.strip;
  }

  // Where the map's canvas starts on the stage.
  get origin() {
    const [x, y] = this.sizes.number;
    return { x, y };
  }

  get carded() {
    const { row, column } = this.shown();
    return row !== null || column !== null;
  }

  spelled(scale) {
    const { layer } = this.shown(), room = scale >= ROOM;
    return { rows: room && layer.query_tokens, columns: room && layer.key_tokens };
  }

  band(scale) {
    const { number, token } = this.sizes, { rows, columns } = this.spelled(scale);
    return { left: (rows ? token : number)[0], top: (columns ? token : number)[1] };
  }

  // CSS pixels of the right and of the bottom that are kept for buttons, or for the card.
  kept(carded, split = this.split) {
    const { edge, card } = this.sizes;
    if (split) return { right: 8, bottom: 8 }; // both are outside of the panes
    if (!carded) return edge;
    return { right: card.right, bottom: card.part ? Math.round(card.part * this.panes[0].height) : card.bottom };
  }

  // Where the map can be seen whatever is shown around it, in CSS pixels of its canvas.
  free(scale, carded = this.carded) {
    const { x, y } = this.origin, band = this.band(scale), kept = this.kept(carded);
    const left = band.left - x, top = band.top - y;
    return {
      left, top,
      right: Math.max(this.width - x - kept.right - this.strip, left + LEAST),
      bottom: Math.max(this.height - y - kept.bottom - this.strip, top + LEAST),
    };
  }

  // The largest scale at which the whole matrix is free. Tokens take room from the cells that they need to be written.
  fit() {
    const { queries, keys } = this.shown().layer;
    const within = ({ left, top, right, bottom }) => Math.min((right - left) / keys, (bottom - top) / queries);
    const spelled = within(this.free(ROOM));
    return spelled >= ROOM ? spelled : Math.min(within(this.free(0)), ROOM * (1 - 1e-6));
  }

  // Whether the whole matrix has room for its tokens.
  get small() {
    return this.fit() >= ROOM;
  }

  get scales() {
    const { layer } = this.shown(), least = Math.min(this.fit(), LARGEST_CELL) * 0.6;
    return [least, Math.max(LARGEST_CELL / (layer.levels ? sideOf(layer, finestOf(layer)) : 1), least)];
  }

  // The whole matrix, in the middle of the stage, but where the card will not cover it if there is such a place.
  home() {
    const { queries, keys } = this.shown().layer;
    const scale = Math.min(Math.max(this.fit(), THINNEST / Math.min(queries, keys)), LARGEST_CELL);
    const free = this.free(scale), open = this.free(scale, false), carded = this.free(scale, true);
    const x = along(keys * scale, free.left, free.right, open.right, carded.right);
    const y = this.narrow ? free.top : along(queries * scale, free.top, free.bottom, open.bottom, carded.bottom);
    return { q: ((free.top + free.bottom) / 2 - y) / scale, k: ((free.left + free.right) / 2 - x) / scale, scale };
  }

  // In CSS pixels of the stage: the canvas starts at (x, y); (left, top) is where the axes stand, at the matrix if its
  // edge is on screen; (right, bottom) is the end of what can be seen of it; (width, height) all but the card.
  frame({ scale, offset }) {
    const { layer, row, column } = this.shown(), { x, y } = this.origin, band = this.band(scale), { carded } = this;
    const card = carded && !this.split ? this.kept(true) : { right: 0, bottom: 0 };
    const width = this.width - (this.narrow ? 0 : card.right), height = this.height - (this.narrow ? card.bottom : 0);
    const end = { right: width - (column === null ? 0 : this.strip), bottom: height - (row === null ? 0 : this.strip) };
    return {
      x, y, band, width, height, end, spelled: this.spelled(scale),
      left: Math.max(band.left, Math.round(x + offset.x)),
      top: Math.max(band.top, Math.round(y + offset.y)),
      right: Math.min(end.right, Math.round(x + layer.keys * scale + offset.x)),
      bottom: Math.min(end.bottom, Math.round(y + layer.queries * scale + offset.y)),
    };
  }

  // What a picture of two panes shows: both, and the lines above them.
  get both() {
    const [first, second] = this.panes;
    return { x: 0, y: 0, width: second.x + second.width, height: Math.max(first.y, second.y) + second.height };
  }

  // What a picture of the view needs to show: the matrix, its axes and profiles, and a little paper around them.
  used({ left, top, right, bottom, band, width, height }) {
    const { row, column } = this.shown(), x = left - band.left, y = top - band.top;
    const past = (end, pinned, most) => Math.min(end + (pinned === null ? 0 : this.strip) + 16, most);
    return { x, y, width: past(right, column, width) - x, height: past(bottom, row, height) - y };
  }
}

function along(size, low, high, open, carded) {
  if (size >= high - low) return low;
  const middle = low + (open - low - size) / 2;
  return Math.max(carded - size >= low ? Math.min(middle, carded - size) : Math.min(middle, high - size), low);
}
