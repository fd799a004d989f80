// How far information travels: what one position can know of after several layers that all have the same mask.
//
//   const view = reach(parent, { label });  view.update({ mask: (i, j) => bool, n, layers, row });
//
// Layers are rows, the last one at the top; a line goes from a position to each that it sees in the layer below.
// known({ mask, n, layers, row }) gives for each layer, from the last to the input, which positions have a part.

import { each, figure } from "./draw.js";

const LEFT = 62, RIGHT = 8, TOP = 12, BOTTOM = 24, STEP = 44; // px

export function known({ mask, n, layers, row }) {
  const list = [Array.from({ length: n }, (_, j) => j === row)];
  for (let layer = 0; layer < layers; layer++) {
    const above = list[layer];
    list.push(above.map((_, j) => above.some((has, i) => has && mask(i, j))));
  }
  return list;
}

export function reach(parent, { label, most = 760 }) {
  let model = null;
  const view = figure(parent, label, draw, { most });
  view.svg.classList.add("reach");
  const lines = view.group(), dots = view.group(), names = view.group("ticks"), feet = view.group("ticks");

  function draw(width) {
    if (!model) return 40;
    const { mask, n, layers, row } = model, found = known(model);
    const x = (j) => LEFT + (j + 0.5) * ((width - LEFT - RIGHT) / n), y = (layer) => TOP + layer * STEP;
    const size = Math.min(6, (width - LEFT - RIGHT) / n / 2.8), f = (v) => v.toFixed(1);
    each(lines, "path", found.slice(0, -1), (has, layer) => {
      let d = "";
      for (let i = 0; i < n; i++) if (has[i]) for (let j = 0; j < n; j++) if (mask(i, j)) d += `M${f(x(i))} ${y(layer)}L${f(x(j))} ${y(layer + 1)}`;
      return { d };
    });
    each(dots, "circle", found.flatMap((has, layer) => has.map((one, j) => ({ one, j, layer }))), ({ one, j, layer }) => ({ cx: x(j), cy: y(layer), r: size, class: one ? (layer === 0 ? "asked" : "known") : "" }));
    each(names, "text", found, (_, layer) => ({ x: LEFT - 8, y: y(layer) + 4, "text-anchor": "end", text: layer === layers ? "input" : `layer ${layers - layer}` }));
    const every = Math.max(1, Math.ceil((n * 18) / (width - LEFT - RIGHT)));
    each(feet, "text", Array.from({ length: n }, (_, j) => j).filter((j) => j % every === 0), (j) => ({ x: x(j), y: y(layers) + 20, "text-anchor": "middle", text: String(j) }));
    return y(layers) + BOTTOM;
  }

  return { update(next) { model = next; view.redraw(); }, svg: view.svg };
}
