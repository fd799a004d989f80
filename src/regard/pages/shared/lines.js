// Lines from token to token: queries at the left, keys at the right. It needs nothing but its arguments, so any page can use it.
//
//   const view = lines(parent, { tell, choose });
//   view.show({ queries, keys, heads: [{ name, color, weight: (row, column) => number }], threshold, allowed, height });
//
// `queries` and `keys` are labels. `weight` gives -Infinity for hidden pairs. `allowed(row, column)` filters pairs. `height` is that of a row in
// px, null for one that can be read. `tell(lines, x, y)` shows what a token attends to, null hides it. `choose(row, column)` is called with a
// pair: a click on a token keeps its lines, then a click on one at the other side. `look({side, n} or null)` is told where the pointer or the keys
// are; with `at: {side, n}` in what is shown, a page says it. `view.svg()` is the drawing as text of a file.

const SVG = "http://www.w3.org/2000/svg";
const MOST = 4000; // lines; more, and only the strongest are drawn
const FAINT = 0.001; // of a single token's lines, those below are left out
const READABLE = 15, TIGHT = 9, LETTER = 14; // px
const MOST_LETTERS = 22;

function element(tag, parent, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

const cut = (text) => { const letters = Array.from(text); return letters.length > MOST_LETTERS ? letters.slice(0, MOST_LETTERS - 1).join("") + "…" : text; };
const written = (weight) => weight >= 0.001 ? String(Number(weight.toPrecision(3))) : "< 0.001";

export function lines(parent, { tell, choose, look }) {
  const svg = element("svg", parent, { class: "lines-drawing", tabindex: 0, role: "img" });
  svg.setAttribute("aria-label", "Lines from queries (left) to keys (right); arrow keys move from token to token, Enter keeps one");
  const behind = element("g", svg), curves = element("g", svg, { fill: "none" }), texts = element("g", svg);
  const measure = document.createElement("canvas").getContext("2d");
  let model = null, place = null, at = null, pinned = null, drawn = { count: 0, all: 0, share: 0, cut: false };

  const labelsOf = (side) => side === "query" ? model.queries : model.keys;
  const other = (side) => side === "query" ? "key" : "query";
  const y = (side, n) => place.top + (n + 0.5) * place.deep / labelsOf(side).length;
  const weight = (head, side, n, m) => side === "query" ? model.heads[head].weight(n, m) : model.heads[head].weight(m, n);
  const allowed = (side, n, m) => !model.allowed || (side === "query" ? model.allowed(n, m) : model.allowed(m, n));

  function layout() {
    const width = Math.max(Math.min(parent.clientWidth - 16, 1100), 260), count = Math.max(model.queries.length, model.keys.length, 1);
    const height = model.height === null ? Math.max(Math.min((model.room - 40) / count, 44), READABLE) : model.height;
    const letter = Math.min(Math.max(height * 0.75, 10), LETTER);
    measure.font = `${letter}px system-ui, sans-serif`;
    const widest = (labels) => Math.min(labels.reduce((most, text) => Math.max(most, measure.measureText(cut(text)).width), 24), width * 0.34);
    const left = widest(model.queries) + 14, right = widest(model.keys) + 14;
    return { width, height, letter, top: 26, deep: height * count, left, right, start: left, stop: width - right };
  }

  function drawLabels() {
    texts.replaceChildren();
    const every = Math.max(1, Math.ceil(TIGHT / place.height));
    for (const [side, labels, x, anchor] of [["query", model.queries, place.start - 8, "end"], ["key", model.keys, place.stop + 8, "start"]]) {
      element("text", texts, { x, y: 14, "text-anchor": anchor, class: "soft", "font-size": 11 }, side === "query" ? "queries" : "keys");
      labels.forEach((label, n) => {
        const current = at && at.side === side && at.n === n;
        if (n % every && !current) return;
        const text = element("text", texts, { x, y: y(side, n), "text-anchor": anchor, "dominant-baseline": "central", "font-size": place.letter, class: current ? "mark" : "ink" }, cut(label));
        text.style.unicodeBidi = "isolate";
      });
    }
  }

  function curve(head, row, column, value, strong) {
    const aside = (head - (model.heads.length - 1) / 2) * Math.min(2, place.height / (1.6 * model.heads.length));
    const bend = (place.stop - place.start) * 0.4, from = y("query", row) + aside, to = y("key", column) + aside, size = Math.min(Math.abs(value), 1);
    const wide = Math.min(0.7 + 3.6 * size, Math.max(0.6 * place.height, 0.5)); // in small rows lines must not cover each other
    const d = `M${place.start.toFixed(1)} ${from.toFixed(1)}C${(place.start + bend).toFixed(1)} ${from.toFixed(1)} ${(place.stop - bend).toFixed(1)} ${to.toFixed(1)} ${place.stop.toFixed(1)} ${to.toFixed(1)}`;
    element("path", curves, { d, stroke: model.heads[head].color, "stroke-opacity": (strong ? 0.25 + 0.7 * size : 0.12 + 0.8 * size).toFixed(3), "stroke-width": wide.toFixed(2) });
  }

  // All weights that are strong enough, weak ones first so that strong ones lie on top.
  function drawAll() {
    const links = [];
    let all = 0, total = 0, share = 0;
    model.heads.forEach((head, number) => {
      for (let row = 0; row < model.queries.length; row++) for (let column = 0; column < model.keys.length; column++) {
        const value = head.weight(row, column);
        if (!(value > 0)) continue;
        all += 1;
        total += value;
        if (value >= model.threshold && (!model.allowed || model.allowed(row, column))) { links.push([number, row, column, value]); share += value; }
      }
    });
    links.sort((one, two) => two[3] - one[3]);
    const strongest = links.slice(0, MOST);
    share = strongest.reduce((sum, link) => sum + link[3], 0);
    drawn = { count: strongest.length, all, share: total > 0 ? share / total : 0, cut: links.length > MOST };
    strongest.reverse().forEach((link) => curve(...link));
  }

  // All weights of one token, as lines and as stripes of color behind the tokens at the other side.
  function drawOne({ side, n }) {
    const far = other(side), found = [];
    labelsOf(far).forEach((_, m) => model.heads.forEach((_, head) => {
      const value = weight(head, side, n, m);
      if (value >= FAINT && allowed(side, n, m)) found.push([head, m, value]);
    }));
    found.sort((one, two) => one[2] - two[2]);
    const wide = (far === "key" ? place.right : place.left) - 6, stripe = wide / model.heads.length;
    const x = far === "key" ? place.stop + 4 : place.start - 4 - wide;
    for (const [head, m, value] of found) {
      curve(head, side === "query" ? n : m, side === "query" ? m : n, value, true);
      element("rect", behind, { x: x + head * stripe, y: y(far, m) - place.height / 2, width: stripe, height: place.height, fill: model.heads[head].color, "fill-opacity": (0.75 * Math.min(value, 1)).toFixed(3) });
    }
    return found.reverse();
  }

  function tellOne({ side, n }, found) {
    const far = other(side), strongest = found.slice(0, 8).map(([head, m, value]) => {
      const which = model.heads.length > 1 ? `head ${model.heads[head].name}: ` : "";
      return [which, labelsOf(far)[m], ` ${written(value)}`];
    });
    const more = found.length > 8 ? [`and ${found.length - 8} weaker`] : [];
    const box = svg.getBoundingClientRect(), x = box.left + (side === "query" ? place.start : place.stop), line = box.top + y(side, n);
    const doing = side === "query" ? "attends to" : "is attended to by";
    tell([[`${side} ${n}: `, labelsOf(side)[n], ` ${found.length ? doing : `${doing} no token here`}`], ...strongest, ...more], x, line);
  }

  function draw() {
    if (!model) return;
    place = layout();
    svg.setAttribute("width", place.width);
    svg.setAttribute("height", place.top + place.deep + 10);
    svg.setAttribute("viewBox", `0 0 ${place.width} ${place.top + place.deep + 10}`);
    Object.assign(svg.dataset, { start: place.start, stop: place.stop, top: place.top, row: place.height });
    redraw();
  }

  function redraw() {
    behind.replaceChildren();
    curves.replaceChildren();
    drawLabels();
    if (!at) { drawAll(); tell(null); return; }
    tellOne(at, drawOne(at));
  }

  function under(event) {
    const box = svg.getBoundingClientRect(), x = event.clientX - box.left, line = event.clientY - box.top;
    const side = x < place.start + 12 ? "query" : x > place.stop - 12 ? "key" : null;
    if (side === null || line < place.top) return null;
    const n = Math.floor((line - place.top) / place.deep * labelsOf(side).length);
    return n >= 0 && n < labelsOf(side).length ? { side, n } : null;
  }
  const same = (one, two) => Boolean(one) === Boolean(two) && (!one || (one.side === two.side && one.n === two.n));
  function go(next) { if (!same(at, next)) { at = next; redraw(); if (look) look(at); } }

  svg.addEventListener("pointermove", (event) => { if (model && !pinned) go(under(event)); });
  svg.addEventListener("pointerleave", () => { if (model && !pinned) go(null); });
  svg.addEventListener("click", (event) => {
    const token = model && under(event);
    if (!token) { pinned = null; return model && go(null); }
    press(token);
  });
  function press(token) {
    if (pinned && token.side !== pinned.side) return choose(...(token.side === "key" ? [pinned.n, token.n] : [token.n, pinned.n]));
    pinned = same(pinned, token) ? null : token;
    go(token);
  }
  svg.addEventListener("keydown", (event) => {
    if (!model) return;
    if (event.key === "Escape") { pinned = null; return go(null); }
    if ((event.key === "Enter" || event.key === " ") && at) { event.preventDefault(); return press(at); }
    const step = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: "query", ArrowRight: "key" }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    pinned = null;
    const side = typeof step === "string" ? step : at ? at.side : "query", count = labelsOf(side).length;
    if (!count) return;
    const n = typeof step === "string" ? (at ? at.n : 0) : at ? at.n + step : 0;
    go({ side, n: Math.min(Math.max(n, 0), count - 1) });
    const line = svg.getBoundingClientRect().top + y(side, at.n), box = parent.getBoundingClientRect();
    if (line > box.bottom - 30 || line < box.top + 30) parent.scrollTop += line - (box.top + box.bottom) / 2;
  });
  svg.addEventListener("blur", () => { if (model && !pinned) go(null); });

  return {
    show(next) {
      const sizes = (one) => one && `${one.queries.length} ${one.keys.length}`;
      if (sizes(model) !== sizes(next)) at = pinned = null;
      if (next.at !== undefined) at = next.at;
      model = next;
      draw();
    },
    resize: draw,
    rowHeight: () => place ? place.height : READABLE,
    drawn: () => drawn,
    clear() { pinned = null; if (model) go(null); },
    // The drawing as a file of its own, with the colors it has now.
    svg(title) {
      const copy = svg.cloneNode(true), style = getComputedStyle(svg);
      for (const name of ["class", "tabindex", "role", "aria-label", "data-start", "data-stop", "data-top", "data-row"]) copy.removeAttribute(name);
      copy.setAttribute("xmlns", SVG);
      copy.setAttribute("font-family", "system-ui, sans-serif");
      const colors = { ink: style.getPropertyValue("--ink"), soft: style.getPropertyValue("--soft"), mark: style.getPropertyValue("--mark") };
      for (const text of copy.querySelectorAll("text")) {
        text.setAttribute("fill", colors[text.getAttribute("class")].trim());
        text.removeAttribute("class");
      }
      const paper = element("rect", null, { width: "100%", height: "100%", fill: style.getPropertyValue("--paper").trim() });
      copy.prepend(element("title", null, {}, title), paper);
      return new XMLSerializer().serializeToString(copy);
    },
  };
}
