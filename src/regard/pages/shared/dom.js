// Elements of the page. All text enters here or through a canvas, as text.

export function make(tag, parent, { text, name, ...attributes } = {}) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (tag === "button") element.type = "button";
  if (parent) parent.append(element);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function makeSvg(tag, parent, attributes = {}) {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (parent) parent.append(element);
  return element;
}

const ICONS = {
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  fit: "M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9M10.4 10.4 14 14",
  peak: "M2 13 6 4l3 6 2-3 3 6z",
  save: "M8 2v8M4.5 6.8 8 10.3l3.5-3.5M3 13.5h10",
  link: "M6.8 9.2 9.2 6.8M7.2 4.6 8.6 3.2a2.97 2.97 0 0 1 4.2 4.2L11.4 8.8M8.8 11.4 7.4 12.8a2.97 2.97 0 0 1-4.2-4.2L4.6 7.2",
  compare: "M2.5 3h4.5v10H2.5zM9 3h4.5v10H9z",
  swap: "M3 5.5h9.5M10 3l2.5 2.5L10 8M13 10.5H3.5M6 8l-2.5 2.5L6 13",
  text: "M2.5 3.5h11M2.5 6.5h11M2.5 9.5h11M2.5 12.5h6",
  theme: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11v11",
  close: "M4 4l8 8M12 4l-8 8",
  heads: "M2.5 2.5h4.5v4.5h-4.5zM9 2.5h4.5v4.5h-4.5zM2.5 9h4.5v4.5h-4.5zM9 9h4.5v4.5h-4.5z",
  help: "M5.8 6a2.2 2.2 0 1 1 3.2 2c-.7.4-1 .8-1 1.6M8 12.2v.3",
  down: "M4 6.5 8 10.5l4-4",
};

export function icon(name, parent) {
  const svg = makeSvg("svg", parent, { viewBox: "0 0 16 16", "aria-hidden": "true", class: "icon" });
  makeSvg("path", svg, { d: ICONS[name] });
  return svg;
}

export function iconButton(name, parent, label, key) {
  const title = key ? `${label} (${key})` : label;
  const button = make("button", parent, { name: "tool", "aria-label": label, title });
  if (key) button.setAttribute("aria-keyshortcuts", key);
  icon(name, button);
  return button;
}

// A choice of one among few, as pressed buttons side by side.
export function segmented(parent, label, options, choose) {
  const group = make("div", parent, { name: "segmented", role: "group", "aria-label": label });
  const buttons = options.map(({ value, text, title }) => {
    const button = make("button", group, { text, title, "data-value": value });
    button.addEventListener("click", () => choose(value));
    return button;
  });
  return (value) => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.value === value));
  };
}
