// Shapes that flow through a layer: stages of boxes, from left to right where there is room, else from top to bottom.
//
//   const view = flow(parent, { label });
//   view.update([[{ name: "X", shape: [n, d], kind: "other", count: 1 }], [{…}, {…}], …]);
//
// A box has the proportions of its shape, on a logarithmic scale; `count` boxes stand behind each other (heads).
// `from` names the boxes that a box comes from; without it, all of the stage before.

import { each, figure } from "./draw.js";

const SMALL = 10, LARGE = 74, BEHIND = 4, MOST_BEHIND = 5; // px

export function flow(parent, { label, most = 1400 }) {
  let stages = [];
  const view = figure(parent, label, draw, { most });
  view.svg.classList.add("flow");
  const arrows = view.group("arrows"), sheets = view.group("sheets"), names = view.group("names"), shapes = view.group("shapes");
  const side = (size) => SMALL + (LARGE - SMALL) * Math.min(Math.log2(size + 1) / 14, 1);

  function draw(width) {
    const lying = width >= 760, room = lying ? width / stages.length : 0;
    const tallest = Math.max(...stages.map((boxes) => boxes.length), 1), placed = [];
    let y = 0;
    stages.forEach((boxes, stage) => {
      const high = 128;
      boxes.forEach((box, n) => {
        const wide = side(box.shape[1]), deep = side(box.shape[0]);
        const cx = lying ? room * (stage + 0.5) : (width / boxes.length) * (n + 0.5);
        const cy = lying ? ((n + 0.5) * tallest * high) / boxes.length : y + high / 2;
        placed.push({ ...box, stage, wide, deep, cx, cy: cy - 6 });
      });
      y += high;
    });
    const height = lying ? tallest * 128 + 8 : y;
    const links = placed.flatMap((to) => placed.filter((from) => (to.from ? to.from.includes(from.name) : from.stage === to.stage - 1)).map((from) => ({ from, to })));
    each(arrows, "path", links, ({ from, to }) => {
      const [x1, y1, x2, y2] = lying ? [from.cx + from.wide / 2 + 14, from.cy, to.cx - to.wide / 2 - 12, to.cy] : [from.cx, from.cy + from.deep / 2 + 28, to.cx, to.cy - to.deep / 2 - 18];
      const bend = lying ? `C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}` : `C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}`;
      return { d: `M${x1.toFixed(1)} ${y1.toFixed(1)}${bend.replace(/\d+\.\d+/g, (text) => Number(text).toFixed(1))}` };
    });
    const all = placed.flatMap((box) => Array.from({ length: Math.min(box.count ?? 1, MOST_BEHIND) }, (_, n) => ({ box, n: Math.min(box.count ?? 1, MOST_BEHIND) - 1 - n })));
    each(sheets, "rect", all, ({ box, n }) => ({ x: box.cx - box.wide / 2 + n * BEHIND, y: box.cy - box.deep / 2 - n * BEHIND, width: box.wide, height: box.deep, rx: 3, class: `sheet ${box.kind ?? "other"}` }));
    each(names, "text", placed, ({ name, cx, cy, deep, count = 1 }) => ({ x: cx, y: cy - deep / 2 - 7 - (Math.min(count, MOST_BEHIND) - 1) * BEHIND, "text-anchor": "middle", text: name }));
    each(shapes, "text", placed, ({ shape, cx, cy, deep, count = 1 }) => ({ x: cx, y: cy + deep / 2 + 16, "text-anchor": "middle", text: `${count > 1 ? `${count} × ` : ""}${shape.join(" × ")}` }));
    return height;
  }
  return { update(next) { stages = next; view.redraw(); }, svg: view.svg };
}
