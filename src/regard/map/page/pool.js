// Bytes as a picture of a given size: where a pixel stands for several cells it is the strongest of them, and where a cell
// has several pixels it stays crisp.

import { sizeOf } from "./codec.js";

// Which cells each of `pixels` stands for: [first, past the last].
function spans(cells, pixels) {
  return Array.from({ length: pixels }, (_, n) => {
    if (cells > pixels) return [Math.floor((n * cells) / pixels), Math.ceil(((n + 1) * cells) / pixels)];
    const one = Math.floor(((n + 0.5) * cells) / pixels);
    return [one, one + 1];
  });
}

// `rows` × `columns` of a square of `stride` cells a side; what is hidden gets the color `hidden`.
export function pooled(bytes, stride, rows, columns, palette, width, height, hidden) {
  const canvas = document.createElement("canvas"), image = new ImageData(width, height), pixels = new Uint32Array(image.data.buffer);
  Object.assign(canvas, { width, height });
  const across = spans(columns, width);
  const { coding } = palette;
  spans(rows, height).forEach(([r0, r1], y) => across.forEach(([c0, c1], x) => {
    let most = 0;
    for (let r = r0; r < r1; r++) for (let c = c0; c < c1; c++) {
      const byte = bytes[r * stride + c];
      if (sizeOf(byte, coding) > sizeOf(most, coding) || most === 0) most = byte;
    }
    pixels[y * width + x] = palette.table[most];
  }));
  const context = canvas.getContext("2d");
  context.putImageData(image, 0, 0);
  context.globalCompositeOperation = "destination-over";
  context.fillStyle = hidden;
  context.fillRect(0, 0, width, height);
  return canvas;
}
