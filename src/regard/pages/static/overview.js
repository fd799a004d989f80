// All heads as small pictures, to choose one or several by: rows are layers, columns heads.

import { image } from "./colors.js";
import { data, shown } from "./data.js";
import { clamp, label, make } from "./dom.js";

const THUMBNAIL = 104; // dots

export function overview(page, parent) {
  const layered = data.layers.length > 1;
  const names = [...new Set(data.layers.flatMap((layer) => layer.heads))];
  if (layered) names.sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
  const picker = label(make("div", parent, undefined, layered ? "picker" : "picker flow"), "Heads; arrow keys move from one to the next");
  picker.setAttribute("role", "group");
  if (layered) {
    make("span", picker, "head", "corner");
    names.forEach((name, n) => place(make("span", picker, name, "head"), 1, n + 2));
  }
  function place(element, row, column) { element.style.gridArea = `${row} / ${column}`; return element; }

  const buttons = data.layers.map((layer, n) => {
    if (layered) place(make("span", picker, layer.name.replace(/^layer /, "").split(" ")[0], "name"), n + 2, 1).title = layer.path || layer.name;
    if (layer.refused) {
      const reason = make("span", picker, `refused: ${layer.refused}`, "refused");
      reason.title = layer.refused;
      if (layered) reason.style.gridArea = `${n + 2} / 2 / auto / -1`;
    }
    return layer.heads.map((name, head) => {
      const button = label(make("button", picker), layered ? `${layer.name}, head ${name}` : `head ${name}`);
      make("canvas", button);
      if (layered) { button.title = `${layer.name}, head ${name}`; place(button, n + 2, names.indexOf(name) + 2); } else make("span", button, name);
      button.addEventListener("click", (event) => page.choose(n, head, { add: event.ctrlKey || event.metaKey || event.shiftKey }));
      return button;
    });
  });

  // Left and right between heads, up and down between layers.
  picker.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    if (step[0] && !layered) return;
    const at = shown.indexOf(page.state.layer) + step[0];
    page.choose(shown[clamp(at, 0, shown.length - 1)], page.state.head + step[1], { focused: true });
  });

  return {
    // Small pictures again: other cells or another scale.
    redraw() {
      // all heads of a layer side by side where they can still be told apart
      const room = (window.innerWidth >= 1000 ? 0.38 * window.innerWidth : document.body.clientWidth) - 70;
      const size = clamp(Math.floor(room / names.length) - 5, 20, 44);
      if (layered) picker.style.gridTemplateColumns = `max-content repeat(${names.length}, ${size + 4}px)`;
      buttons.forEach((row, n) => row.forEach((button, head) => {
        const layer = page.layers()[n], longest = Math.max(layer.down.count, layer.across.count, 1);
        const small = image(layer, page.state.view, head, Math.ceil(longest / THUMBNAIL), page.limits(layer, head));
        const canvas = button.firstChild, context = canvas.getContext("2d");
        canvas.style.width = canvas.style.height = layered ? `${size}px` : "";
        canvas.width = canvas.height = THUMBNAIL;
        context.imageSmoothingEnabled = false;
        const [wide, tall] = [layer.across.count, layer.down.count].map((count) => THUMBNAIL * Math.max(count / longest, 0.25));
        context.drawImage(small, (THUMBNAIL - wide) / 2, (THUMBNAIL - tall) / 2, wide, tall);
      }));
    },
    // Mark the chosen head.
    mark(focused) {
      buttons.forEach((row, n) => row.forEach((button, head) => {
        const chosen = n === page.state.layer && head === page.state.head;
        button.setAttribute("aria-pressed", String(chosen));
        button.tabIndex = chosen ? 0 : -1;
      }));
      const button = (buttons[page.state.layer] || [])[page.state.head];
      if (!button) return;
      if (focused) button.focus();
      const box = button.getBoundingClientRect(), around = picker.getBoundingClientRect();
      if (box.top < around.top + 24) picker.scrollTop += box.top - around.top - 24;
      else if (box.bottom > around.bottom) picker.scrollTop += box.bottom - around.bottom;
      if (box.left < around.left) picker.scrollLeft += box.left - around.left - 40;
      else if (box.right > around.right) picker.scrollLeft += box.right - around.right;
    },
  };
}
