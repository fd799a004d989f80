// What is drawn, once a frame: the map on its canvas, axes, profiles and marks on another above it.

import { axes } from "./axes.js";
import { paint } from "./scene.js";

const LEAST = 50; // CSS pixels

export class Screen {
  constructor(app, over) {
    Object.assign(this, { app, over, due: 0, ended: false });
  }

  end() {
    this.ended = true;
  }

  resize() {
    const { layout, plot, stage, view } = this.app, wide = stage.clientWidth, high = stage.clientHeight, ratio = window.devicePixelRatio || 1;
    if (!wide || !high) return;
    layout.resize(wide, high);
    const { x, y } = layout.origin, width = Math.max(wide - x, LEAST), height = Math.max(high - y, LEAST);
    Object.assign(plot.canvas.style, { left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` });
    plot.resize(width, height, ratio);
    this.over.width = Math.round(wide * ratio);
    this.over.height = Math.round(high * ratio);
    view.resize(width, height);
    this.app.moved();
  }

  invalidate() {
    if (!this.due && !this.ended) this.due = requestAnimationFrame(() => { this.due = 0; this.draw(); });
  }

  draw() {
    const { app } = this, statistic = app.state.get("statistic"), theme = app.look.theme(), palette = app.look.palette();
    const drawn = app.plot.draw(app.place(), app.layer(), statistic, palette, theme, app.heads.thumb(app.place()));
    const context = this.over.getContext("2d"), { ratio } = app.plot;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.over.width, this.over.height);
    paint(context, this.scene(true));
    app.minimap.draw(statistic, palette, theme);
    app.legend.draw(palette, theme);
    app.notice.draw(drawn);
    app.heads.draw();
    if (!drawn.missing && app.range.rest()) this.invalidate();
  }

  // `pointer`: with the marks of the cell under it.
  scene(pointer) {
    const { app } = this, theme = app.look.theme(), frame = app.frame(), { width, height } = app.layout, { end } = frame;
    return [
      { kind: "box", x: end.right, y: 0, width: width - end.right, height, fill: theme.paper },
      { kind: "box", x: 0, y: end.bottom, width, height: height - end.bottom, fill: theme.paper },
      ...app.row.scene(frame, theme), ...app.column.scene(frame, theme),
      ...app.row.marks(frame, theme), ...app.column.marks(frame, theme),
      ...axes(app.view, app.layer(), frame, theme, (axis, at) => app.word(axis, at)),
      ...app.row.scale(frame, theme), ...app.column.scale(frame, theme),
      ...(pointer ? app.hover.scene(frame, theme) : []),
    ];
  }
}
