// The view as a file: title, axes, map, scale of colors and what a dot means. In an SVG the text stays text.

import { makeSvg } from "./dom.js";
import { FONT, append, paint } from "./scene.js";
import { ticks, valueAt } from "./legend.js";

const HEAD = 44, FOOT = 64, BAR = 240;

// The parts around the map, as one scene. `picture`: {title, lines, scene, frame, palette, theme, width, height}.
function around({ title, meaning, note, frame, palette, theme, width, height }) {
  const bottom = HEAD + height, left = frame.x;
  const scene = [
    { kind: "box", x: 0, y: 0, width, height: HEAD, fill: theme.paper },
    { kind: "box", x: 0, y: bottom, width, height: FOOT, fill: theme.paper },
    { kind: "text", x: 16, y: 22, text: title, fill: theme.ink, size: 15, weight: 600 },
  ];
  for (let n = 0; n < BAR; n++) {
    const value = valueAt(palette, (n + 0.5) / BAR), below = palette.threshold !== null && value < palette.threshold;
    const fill = below ? theme.paper : `rgb(${palette.color(value).join(" ")})`;
    scene.push({ kind: "box", x: left + n, y: bottom + 16, width: 1.2, height: 10, fill });
  }
  for (const { part, text } of ticks(palette)) {
    scene.push({ kind: "text", x: left + part * BAR, y: bottom + 38, text, fill: theme.soft, size: 11, anchor: "middle" });
  }
  scene.push({ kind: "text", x: left + BAR + 40, y: bottom + 20, text: meaning, fill: theme.ink, size: 12 });
  scene.push({ kind: "text", x: left + BAR + 40, y: bottom + 38, text: note, fill: theme.soft, size: 11 });
  return scene;
}

export async function png(picture, map, ratio) {
  const { width, height, frame, theme } = picture, canvas = document.createElement("canvas");
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round((height + HEAD + FOOT) * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = theme.paper;
  context.fillRect(0, 0, width, height + HEAD + FOOT);
  context.imageSmoothingEnabled = false;
  context.drawImage(map, frame.x, HEAD + frame.y, width - frame.x, height - frame.y);
  context.save();
  context.translate(0, HEAD);
  paint(context, picture.scene);
  context.restore();
  paint(context, around(picture));
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

export function svg(picture, map) {
  const { width, height, frame, theme } = picture, whole = height + HEAD + FOOT;
  const look = { viewBox: `0 0 ${width} ${whole}`, width, height: whole, "font-family": FONT };
  const root = makeSvg("svg", null, look);
  makeSvg("title", root).textContent = picture.title;
  makeSvg("rect", root, { width, height: whole, fill: theme.paper });
  const place = { x: frame.x, y: HEAD + frame.y, width: width - frame.x, height: height - frame.y };
  makeSvg("image", root, { ...place, href: map.toDataURL("image/png"), "image-rendering": "pixelated" });
  append(makeSvg("g", root, { transform: `translate(0 ${HEAD})` }), picture.scene);
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
