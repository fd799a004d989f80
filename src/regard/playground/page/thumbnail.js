// A matrix as a small picture without words, drawn on a canvas: cheap enough for a dozen of them in a frame.
//
//   const view = thumbnail(parent, { label });  view.update({ values, high: 1, signed: false });

import { isDark } from "./draw.js";
import { RAMPS, ramp } from "./shared/colors.js";
import { make } from "./shared/dom.js";

export function thumbnail(parent, { label, name = "" }) {
  const canvas = make("canvas", parent, { name: `thumbnail ${name}`.trim(), role: "img", "aria-label": label });
  return {
    element: canvas,
    update({ values, high = 1, signed = false }) {
      const rows = values.length, columns = values[0].length, stops = RAMPS[signed ? "balance" : "tide"][isDark() ? "dark" : "light"];
      if (canvas.width !== columns || canvas.height !== rows) Object.assign(canvas, { width: columns, height: rows });
      const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
      values.forEach((row, i) => row.forEach((value, j) => {
        const share = value / high;
        image.data.set([...ramp(stops, signed ? 0.5 + share / 2 : share), 255], 4 * (i * columns + j));
      }));
      context.putImageData(image, 0, 0);
    },
  };
}
