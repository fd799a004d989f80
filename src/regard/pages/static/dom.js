// Elements of the page. All text enters here or through a canvas, as text.

export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
export const ratio = () => window.devicePixelRatio || 1;
export const FONT = "system-ui, sans-serif";

export function make(tag, parent, text, name) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  if (tag === "button") element.type = "button";
  if (parent) parent.append(element);
  return element;
}

export function label(element, text) {
  element.setAttribute("aria-label", text);
  return element;
}

// A choice of one among many. An option is [value, text, whether it is off].
export function chooser(parent, name, options, changed) {
  const select = make("select", make("label", parent, name));
  select.name = name;
  fill(select, options);
  select.addEventListener("change", () => changed(select.value));
  return select;
}

export function fill(select, options) {
  select.replaceChildren();
  options.forEach(([value, text, off]) => {
    const option = make("option", select, text);
    option.value = value;
    option.disabled = Boolean(off);
  });
}

export function checkbox(parent, text, changed) {
  const holder = make("label", parent), box = make("input", holder);
  make("span", holder, text);
  box.type = "checkbox";
  box.addEventListener("change", () => changed(box.checked));
  return box;
}

// A choice of one among few, as pressed buttons side by side.
export function segmented(parent, name, options, choose) {
  const group = label(make("div", parent, undefined, "segmented"), name);
  group.setAttribute("role", "group");
  const buttons = options.map(([value, text]) => {
    const button = make("button", group, text);
    button.addEventListener("click", () => choose(value));
    return [value, button];
  });
  return (chosen) => buttons.forEach(([value, button]) => button.setAttribute("aria-pressed", String(value === chosen)));
}

export const number = (value) => Number.isFinite(value) ? String(Number(value.toPrecision(3))) : String(value);
export const short = (text, most) => { const letters = Array.from(text); return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : text; };

// A text of several lines beside the pointer. Lines are strings or [text, text of a document].
export function tooltip() {
  const tip = make("div", document.body, undefined, "tip");
  tip.setAttribute("role", "status");
  tip.hidden = true;
  return {
    hide() { tip.hidden = true; },
    // Beside the point (x, y); with `before`, left of it if there is room.
    show(x, y, lines, last, before) {
      tip.replaceChildren();
      for (const line of lines) {
        const [before, text, after] = Array.isArray(line) ? line : [line];
        const element = make("div", tip, before);
        if (text) make("bdi", element, text);
        if (after) element.append(after);
      }
      if (last) make("div", tip, last, "weight");
      tip.hidden = false;
      if (before && x - tip.offsetWidth - 14 >= 4) x -= tip.offsetWidth + 28;
      const right = x + 14 + tip.offsetWidth <= window.innerWidth - 8, below = y + 14 + tip.offsetHeight <= window.innerHeight - 8;
      tip.style.left = `${Math.max(4, right ? x + 14 : x - 14 - tip.offsetWidth)}px`;
      tip.style.top = `${Math.max(4, below ? y + 14 : y - 14 - tip.offsetHeight)}px`;
    },
  };
}

export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
