// The keyboard: everything a pointer can do. Keys are read where no text is being written.

const STEP = 96, ZOOM = 1.5; // CSS pixels; times

// `ear`: the document where the map has a page of its own, its element in a notebook. Returns how to stop.
export function listen(app, ear) {
  const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const acts = {
    "+": () => app.view.zoomBy(ZOOM), "=": () => app.view.zoomBy(ZOOM),
    "-": () => app.view.zoomBy(1 / ZOOM), "_": () => app.view.zoomBy(1 / ZOOM),
    0: () => app.acts.home(),
    1: () => app.acts.onePixel(),
    f: () => app.search.focus("Find words"), "/": () => app.search.focus("Find words"),
    g: () => app.search.focus("Query, key"),
    s: () => app.strongest.menu.toggle(),
    n: () => app.walk.step(1), p: () => app.walk.step(-1),
    h: () => app.heads.toggle(),
    "[": () => app.acts.nextHead(-1), "]": () => app.acts.nextHead(1),
    "{": () => app.acts.nextLayer(-1), "}": () => app.acts.nextLayer(1),
    m: () => app.acts.switch("statistic", "max", "mean"),
    l: () => app.acts.switch("scale", "log", "linear"),
    c: () => app.acts.nextColors(),
    "<": () => app.acts.moveThreshold(-0.5), ">": () => app.acts.moveThreshold(0.5),
    b: () => app.compare.toggle(), d: () => app.compare.switchMode(), w: () => app.compare.swap(),
    ",": () => app.compare.next(-1), ".": () => app.compare.next(1),
    x: () => app.text.toggle(),
    y: () => app.acts.copyLink(),
    t: () => app.acts.switchTheme(),
    e: () => app.acts.save("png"), E: () => app.acts.save("svg"),
    "?": () => app.help.toggle(),
    Enter: () => app.acts.pinMiddle(),
    Escape: () => app.acts.escape(),
  };
  const hear = (event) => {
    const writes = event.target.closest?.("input[type=text], select, textarea");
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === "Escape") { acts.Escape(); return event.preventDefault(); }
    if (writes) return;
    const arrow = arrows[event.key], within = event.target.closest?.("button, a, input");
    if (within && (arrow || event.key === "Enter" || event.key === " ")) return;
    if (arrow && event.shiftKey) app.acts.movePin(arrow[1], arrow[0]);
    else if (arrow) app.view.panBy(arrow[0] * STEP, arrow[1] * STEP);
    else if (Object.hasOwn(acts, event.key)) acts[event.key]();
    else return;
    event.preventDefault();
  };
  ear.addEventListener("keydown", hear);
  return () => ear.removeEventListener("keydown", hear);
}
