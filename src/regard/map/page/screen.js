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
    const { layout, names, plots, stage, view } = this.app, wide = stage.clientWidth, high = stage.clientHeight, ratio = window.devicePixelRatio || 1;
    if (!wide || !high) return;
    layout.resize(wide, high);
    const { x, y } = layout.origin, width = Math.max(layout.width - x, LEAST), height = Math.max(layout.height - y, LEAST);
    plots.forEach(({ canvas }, n) => {
      const pane = layout.panes[n];
      canvas.hidden = names[n].hidden = !pane;
      if (!pane) return;
      Object.assign(canvas.style, { left: `${pane.x + x}px`, top: `${pane.y + y}px`, width: `${width}px`, height: `${height}px` });
      plots[n].resize(width, height, ratio);
      names[n].hidden = !layout.split;
      Object.assign(names[n].style, { left: `${pane.x + 10}px`, top: `${pane.y - 20}px`, maxWidth: `${pane.width - 20}px` });
    });
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
    const places = app.places(), drawn = { missing: 0, estimate: false };
    places.forEach((place, n) => {
      const own = app.plots[n].draw(place, app.info.layers[place.layer], statistic, palette, theme, app.heads.thumb(place));
      drawn.missing += own.missing;
      drawn.estimate ||= own.estimate;
    });
    const context = this.over.getContext("2d"), { ratio } = app.plot;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.over.width, this.over.height);
    places.forEach((_, n) => {
      const { x, y, width, height } = app.layout.panes[n];
      context.save();
      context.translate(x, y);
      context.beginPath();
      context.rect(0, 0, width, height);
      context.clip();
      paint(context, this.scene(true, n));
      context.restore();
    });
    app.minimap.draw(statistic, palette, theme);
    app.legend.draw(palette, theme);
    app.notice.draw(drawn);
    app.heads.draw();
    if (!drawn.missing && app.range.rest()) this.invalidate();
  }

  // Of the pane of this number. `pointer`: with the marks of the cell under it.
  scene(pointer, pane = 0) {
    const { app } = this, theme = app.look.theme(), frame = app.frame(), { width, height } = app.layout, { end } = frame;
    const [row, column] = pane ? [app.otherRow, app.otherColumn] : [app.row, app.column], place = app.places()[pane];
    return [
      { kind: "box", x: end.right, y: 0, width: width - end.right, height, fill: theme.paper },
      { kind: "box", x: 0, y: end.bottom, width, height: height - end.bottom, fill: theme.paper },
      ...row.scene(frame, theme), ...column.scene(frame, theme),
      ...row.marks(frame, theme), ...column.marks(frame, theme),
      ...axes(app.view, app.layer(), frame, theme, (axis, at) => app.tokens.label(place, axis, at)),
      ...row.scale(frame, theme), ...column.scale(frame, theme),
      ...(pointer ? app.hover.scene(frame, theme) : []),
    ];
  }
}
