// A histogram, and curves over a line of numbers.

import { each, figure, short } from "./draw.js";

const LEFT = 46, RIGHT = 14, TOP = 14, BOTTOM = 34; // px

function ticksOf(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map((n) => n * power).find((each) => each >= raw * 0.999);
  const list = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++) list.push(n * step);
  return list;
}
const powersOf = (low, high) => { const list = []; for (let n = Math.ceil(Math.log2(low) - 1e-9); 2 ** n <= high * 1.0001; n++) list.push(2 ** n); return list; };

function axes(view) {
  const lines = view.group("grid"), across = view.group("ticks"), up = view.group("ticks"), names = view.group("axis-names");
  return ({ width, height, x, y, xTicks, yTicks, xName, yName, xFormat = (v) => short(v, 3), yFormat = (v) => short(v, 3) }) => {
    each(lines, "line", yTicks, (value) => ({ x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value), class: value === 0 ? "axis" : "" }));
    const room = Math.max(1, Math.ceil((xTicks.length * 40) / (width - LEFT - RIGHT)));
    each(across, "text", xTicks.filter((_, n) => n % room === 0), (value) => ({ x: x(value), y: height - BOTTOM + 15, "text-anchor": "middle", text: xFormat(value) }));
    each(up, "text", yTicks, (value) => ({ x: LEFT - 6, y: y(value) + 4, "text-anchor": "end", text: yFormat(value) }));
    each(names, "text", [[xName, width - RIGHT, height - 3, "end"], [yName, LEFT + 4, 10, "start"]], ([text, tx, ty, anchor]) => ({ x: tx, y: ty, "text-anchor": anchor, text: text ?? "" }));
  };
}

// update({ numbers, low, high, bins, kind, marks: [{ value, name }] }): how many numbers fall into each bin, as a share.
export function histogram(parent, { label, height = 190, xName = "", most = 640, top = null }) {
  let model = null;
  const view = figure(parent, label, draw, { most });
  view.svg.classList.add("chart");
  const frame = axes(view), fills = view.group("fills"), marks = view.group("marks"), names = view.group("mark-names");
  function draw(width) {
    if (!model) return height;
    const { numbers, low, high, bins = 40, kind = "weight" } = model, counts = new Array(bins).fill(0);
    for (const value of numbers) {
      const bin = Math.floor(((value - low) / (high - low)) * bins);
      if (bin >= 0 && bin < bins) counts[bin] += 1 / numbers.length; else if (bin === bins) counts[bins - 1] += 1 / numbers.length;
    }
    const largest = top ?? Math.max(...counts, 0.05) * 1.1;
    const x = (value) => LEFT + ((value - low) / (high - low)) * (width - LEFT - RIGHT), y = (share) => height - BOTTOM - (Math.min(share, largest) / largest) * (height - BOTTOM - TOP);
    frame({ width, height, x, y, xTicks: ticksOf(low, high, 7), yTicks: ticksOf(0, largest, 3), xName, yName: "share" });
    const wide = (width - LEFT - RIGHT) / bins;
    each(fills, "rect", counts, (share, n) => ({ x: LEFT + n * wide + 0.5, y: y(share), width: Math.max(wide - 1, 0.5), height: height - BOTTOM - y(share), class: kind }));
    const shown = (model.marks ?? []).filter(({ value }) => value >= low && value <= high);
    each(marks, "line", shown, ({ value }) => ({ x1: x(value), x2: x(value), y1: TOP - 2, y2: height - BOTTOM }));
    each(names, "text", shown, ({ value, name }) => ({ x: x(value) + 4, y: TOP + 6, text: name }));
    return height;
  }
  return { update(next) { model = next; view.redraw(); }, svg: view.svg };
}

// The names of lines at their ends, moved apart where they would cover each other.
function spaced(lines, y) {
  const named = lines.filter(({ name }) => name).map((line) => ({ ...line, at: y(line.points[line.points.length - 1][1]) }));
  const order = [...named].sort((one, other) => other.at - one.at);
  order.forEach((line, n) => { if (n && order[n - 1].at - line.at < 13) line.at = order[n - 1].at - 13; });
  return named;
}

// update({ lines: [{ name, kind, points: [[x, y], …], dashed }], low, high, bottom, top, logX, here: x }).
export function curves(parent, { label, height = 220, xName = "", yName = "", most = 760, xFormat, yFormat }) {
  let model = null;
  const view = figure(parent, label, draw, { most });
  view.svg.classList.add("chart");
  const frame = axes(view), paths = view.group("lines"), marks = view.group("marks"), dots = view.group("dots"), names = view.group("line-names");
  function draw(width) {
    if (!model) return height;
    const { lines, low, high, bottom = 0, top = 1, logX = false } = model;
    const along = (value) => (logX ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low));
    const right = model.room ?? 8, x = (value) => LEFT + along(value) * (width - LEFT - RIGHT - right);
    const y = (value) => height - BOTTOM - ((Math.min(Math.max(value, bottom), top) - bottom) / (top - bottom)) * (height - BOTTOM - TOP);
    frame({ width, height, x, y, xTicks: logX ? powersOf(low, high) : ticksOf(low, high, 8), yTicks: ticksOf(bottom, top, 4), xName, yName, xFormat, yFormat });
    each(paths, "path", lines, ({ points, kind, dashed, color }) => ({
      d: points.map(([px, py], n) => `${n ? "L" : "M"}${x(px).toFixed(1)} ${y(py).toFixed(1)}`).join(""), class: `line ${kind ?? ""}${dashed ? " dashed" : ""}`, stroke: color ?? null,
    }));
    each(names, "text", spaced(lines, y), ({ name, points, kind, color, at }) => ({ x: x(points[points.length - 1][0]) + 5, y: at + 4, class: kind ? `of-${kind}` : "", fill: color ?? null, text: name }));
    const here = model.here === undefined || model.here === null ? [] : [model.here];
    each(marks, "line", here, (value) => ({ x1: x(value), x2: x(value), y1: TOP - 2, y2: height - BOTTOM }));
    const at = lines.flatMap(({ points, kind }) => here.map((value) => {
      const [px, py] = points.reduce((one, other) => (Math.abs(along(other[0]) - along(value)) < Math.abs(along(one[0]) - along(value)) ? other : one));
      return { px, py, kind };
    }));
    each(dots, "circle", at, ({ px, py, kind }) => ({ cx: x(px), cy: y(py), r: 4.5, class: kind ?? "" }));
    return height;
  }
  return { update(next) { model = next; view.redraw(); }, svg: view.svg };
}
