// Lines, boxes and words as plain records, drawn alike on a canvas and into an SVG file.

import { makeSvg } from "./shared/dom.js";

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';

const widths = new Map();
let ruler = null;

export function widthOf(text, size, weight = 400) {
  const key = `${weight} ${size} ${text}`;
  if (!widths.has(key)) {
    if (widths.size > 20000) widths.clear();
    ruler ??= document.createElement("canvas").getContext("2d");
    ruler.font = `${weight} ${size}px ${FONT}`;
    widths.set(key, ruler.measureText(text).width);
  }
  return widths.get(key);
}

// The text, or as much of its start as `width` CSS pixels hold.
export function fitted(text, width, size, weight) {
  if (widthOf(text, size, weight) <= width) return text;
  const letters = Array.from(text);
  let low = 0, high = letters.length - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (widthOf(`${letters.slice(0, middle).join("")}…`, size, weight) <= width) low = middle;
    else high = middle - 1;
  }
  return `${letters.slice(0, low).join("")}…`;
}

export function paint(context, scene) {
  for (const shape of scene) {
    context.globalAlpha = shape.opacity ?? 1;
    if (shape.kind === "text") paintText(context, shape);
    else if (shape.kind === "line") paintLine(context, shape);
    else if (shape.kind === "path") paintPath(context, shape);
    else {
      context.fillStyle = shape.fill;
      context.fillRect(shape.x, shape.y, shape.width, shape.height);
    }
  }
  context.globalAlpha = 1;
}

function paintText(context, { x, y, text, fill, size = 12, weight = 400, anchor = "start", turn = 0 }) {
  context.save();
  context.translate(x, y);
  if (turn) context.rotate((turn * Math.PI) / 180);
  context.font = `${weight} ${size}px ${FONT}`;
  context.fillStyle = fill;
  context.textBaseline = "middle";
  context.textAlign = { start: "left", middle: "center", end: "right" }[anchor];
  context.fillText(text, 0, 0);
  context.restore();
}

function paintLine(context, { x1, y1, x2, y2, stroke, width = 1, dash }) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.strokeStyle = stroke;
  context.lineWidth = width;
  context.setLineDash(dash || []);
  context.stroke();
  context.setLineDash([]);
}

function paintPath(context, { points, fill, stroke, width = 1 }) {
  context.beginPath();
  points.forEach(([x, y], n) => (n ? context.lineTo(x, y) : context.moveTo(x, y)));
  if (fill) {
    context.closePath();
    context.fillStyle = fill;
    context.fill();
  }
  if (stroke) {
    context.strokeStyle = stroke;
    context.lineWidth = width;
    context.stroke();
  }
}

// XML has no control characters; they were made visible before they came here, and lone surrogates are replaced.
const legal = (text) => text.replace(/[\u0000-\u001f]/g, " ").replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");

export function append(parent, scene) {
  for (const shape of scene) {
    const opacity = shape.opacity === undefined ? {} : { opacity: shape.opacity };
    if (shape.kind === "text") {
      const { x, y, fill, size = 12, weight = 400, anchor = "start", turn = 0 } = shape;
      const moved = { transform: `translate(${x} ${y})${turn ? ` rotate(${turn})` : ""}` };
      const look = { fill, "font-size": size, "font-weight": weight, "text-anchor": anchor, "dominant-baseline": "central" };
      makeSvg("text", parent, { ...moved, ...look, ...opacity }).textContent = legal(shape.text);
    } else if (shape.kind === "line") {
      const { x1, y1, x2, y2, stroke, width = 1, dash } = shape;
      const dashed = dash ? { "stroke-dasharray": dash.join(" ") } : {};
      makeSvg("line", parent, { x1, y1, x2, y2, stroke, "stroke-width": width, ...dashed, ...opacity });
    } else if (shape.kind === "path") {
      const d = shape.points.map(([x, y], n) => `${n ? "L" : "M"}${x} ${y}`).join("") + (shape.fill ? "Z" : "");
      makeSvg("path", parent, { d, fill: shape.fill || "none", stroke: shape.stroke || "none", "stroke-width": shape.width || 1, ...opacity });
    } else {
      const { x, y, width, height, fill } = shape;
      makeSvg("rect", parent, { x, y, width, height, fill, ...opacity });
    }
  }
}
