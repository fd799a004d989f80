// From weights to colors.

import { data } from "./data.js";
import { clamp } from "./dom.js";

function between(ramp, fraction) {
  const place = clamp(fraction, 0, 1) * (ramp.length - 1);
  const step = Math.min(Math.floor(place), ramp.length - 2), part = place - step;
  return ramp[step].map((low, n) => Math.round(low + (ramp[step + 1][n] - low) * part));
}
const tableOf = (ramp) => Array.from({ length: 256 }, (_, n) => between(ramp, n / 255));
export const diverging = tableOf(data.diverging), sequential = tableOf(data.ramp);
export const tableFor = (scale) => scale.signed ? diverging : sequential;
export const css = (color) => `rgb(${color.join(" ")})`;

// Black or white, whichever reads better on the color.
export const inkOn = ([red, green, blue]) => 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#000" : "#fff";

// The limits of some cells; `signed`, as far below zero as above.
export function range(cells, start, stop, power, signed) {
  let low = Infinity, high = -Infinity;
  for (let n = start; n < stop; n++) {
    if (!Number.isFinite(cells[n])) continue;
    low = Math.min(low, cells[n]);
    high = Math.max(high, cells[n]);
  }
  if (!(high > -Infinity)) return { low: signed ? -1 : 0, high: 1, power, signed };
  if (signed) { const most = Math.max(-low, high) || 1; return { low: -most, high: most, power: 1, signed }; }
  if (low >= 0) low = 0;
  return { low, high: high > low ? high : low + 1, power, signed };
}

// The color of a value; null where it is hidden.
export function colorOf(value, scale) {
  if (value === -Infinity) return null;
  if (Number.isNaN(value)) return [230, 0, 120];
  const share = clamp((value - scale.low) / (scale.high - scale.low), 0, 1);
  return tableFor(scale)[Math.round(Math.pow(share, scale.power) * 255)];
}

// One dot for the strongest of `step` × `step` cells; the hidden ones stay clear, so that the page shows through.
export function image(layer, view, head, step, scale) {
  const rows = layer.down.count, columns = layer.across.count, cells = layer.cells[view];
  const wide = Math.max(Math.ceil(columns / step), 1), high = Math.max(Math.ceil(rows / step), 1);
  const strongest = new Float32Array(wide * high).fill(-Infinity);
  for (let row = 0, n = head * rows * columns; row < rows; row++) {
    for (let column = 0; column < columns; column++, n++) {
      const dot = Math.floor(row / step) * wide + Math.floor(column / step), value = cells[n];
      const before = strongest[dot], sizes = scale.signed && value !== -Infinity && before !== -Infinity;
      if ((sizes ? Math.abs(value) > Math.abs(before) : value > before) || Number.isNaN(value)) strongest[dot] = value;
    }
  }
  const picture = new ImageData(wide, high);
  strongest.forEach((value, dot) => {
    const color = colorOf(value, scale);
    if (color) picture.data.set([...color, 255], 4 * dot);
  });
  const canvas = document.createElement("canvas");
  canvas.width = wide;
  canvas.height = high;
  canvas.getContext("2d").putImageData(picture, 0, 0);
  return canvas;
}
