// The view as a file: title, axes, map, scale of colors and what a dot means. In an SVG the text stays text.

import { makeSvg } from "./shared/dom.js";
import { FONT, append, fitted, paint, widthOf } from "./scene.js";
import { ticks, valueAt } from "./legend.js";

const HEAD = 44, BAR = 240, LEFT = 28, LINE = 17, LEAST = 340; // CSS pixels
const BESIDE = 640; // a width that has room for words beside the bar

// How a picture lies around the part of the stage that it shows: {x, y, width, height}.
function sizeOf({ part, words }) {
  const width = Math.max(part.width, LEAST), beside = width >= BESIDE, bottom = HEAD + part.height;
  const start = beside ? { x: LEFT + BAR + 40, y: bottom + 21 } : { x: 16, y: bottom + 66 };
  return { width, bottom, start, height: start.y + words.length * LINE + 2 };
}

// A long text makes room for the head that was read from it.
function titled([text, head], width) {
  const own = ` · ${head}`, left = width - widthOf(own, 15, 600);
  return fitted(left < LEAST / 4 ? head : `${fitted(text, left, 15, 600)}${own}`, width, 15, 600);
}

// The parts around the map, as one scene. `picture`: {parts: text and head, words: lines, panes: of the stage, each with its map, scene and title, frame, part,
// palette, theme}.
function around(picture) {
  const { parts, words, palette, theme } = picture, { width, height, bottom, start } = sizeOf(picture);
  const scene = [
    { kind: "box", x: 0, y: 0, width, height: HEAD, fill: theme.paper },
    { kind: "box", x: 0, y: bottom, width, height: height - bottom, fill: theme.paper },
    { kind: "text", x: 16, y: 22, text: titled(parts, width - 32), fill: theme.ink, size: 15, weight: 600 },
  ];
  for (let n = 0; n < BAR; n++) {
    const value = valueAt(palette, (n + 0.5) / BAR);
    const fill = palette.below(value) ? theme.paper : `rgb(${palette.color(value).join(" ")})`;
    scene.push({ kind: "box", x: LEFT + n, y: bottom + 16, width: 1.2, height: 10, fill });
  }
  for (const { part, text } of ticks(palette)) {
    scene.push({ kind: "text", x: LEFT + part * BAR, y: bottom + 38, text, fill: theme.soft, size: 11, anchor: "middle" });
  }
  words.forEach((text, n) => {
    const look = n ? { fill: theme.soft, size: 11 } : { fill: theme.ink, size: 12 };
    scene.push({ kind: "text", x: start.x, y: start.y + n * LINE, text: fitted(text, width - start.x - 8, look.size), ...look });
  });
  return scene;
}

// The scene of a pane with its title, from the corner of the pane.
function titledScene({ scene, title }, theme) {
  return title ? [...scene, { kind: "text", x: 10, y: -10, text: title, fill: theme.ink, size: 12, weight: 600 }] : scene;
}

export async function png(picture, ratio) {
  const { part, frame, theme } = picture, { width, height } = sizeOf(picture), canvas = document.createElement("canvas");
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = theme.paper;
  context.fillRect(0, 0, width, height);
  context.imageSmoothingEnabled = false;
  for (const pane of picture.panes) {
    const { map } = pane;
    context.save();
    context.translate(pane.x - part.x, HEAD + pane.y - part.y);
    context.drawImage(map, frame.x, frame.y, map.width / ratio, map.height / ratio);
    paint(context, titledScene(pane, theme));
    context.restore();
  }
  paint(context, around(picture));
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

export function svg(picture, ratio) {
  const { part, frame, theme } = picture, { width, height } = sizeOf(picture);
  const root = makeSvg("svg", null, { viewBox: `0 0 ${width} ${height}`, width, height, "font-family": FONT });
  makeSvg("title", root).textContent = picture.parts.join(" · ");
  makeSvg("rect", root, { width, height, fill: theme.paper });
  for (const pane of picture.panes) {
    const { map } = pane, moved = makeSvg("g", root, { transform: `translate(${pane.x - part.x} ${HEAD + pane.y - part.y})` });
    const place = { x: frame.x, y: frame.y, width: map.width / ratio, height: map.height / ratio };
    makeSvg("image", moved, { ...place, href: map.toDataURL("image/png"), "image-rendering": "pixelated" });
    append(moved, titledScene(pane, theme));
  }
  append(root, around(picture));
  return new Blob([new XMLSerializer().serializeToString(root)], { type: "image/svg+xml" });
}

export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
