// Controls that are bound to a field of the state: slider, choice, switch, buttons, text.

import { make } from "./shared/dom.js";

let count = 0;

// A row of controls under or over a picture.
export const row = (parent, name = "") => make("div", parent, { name: `controls ${name}`.trim() });

// `log` spreads a range of powers evenly, with three digits, or in whole steps if `step` is 1 or more; `format(value)` is what is shown and read aloud; `ticks` are marked values.
export function slider(parent, state, field, { label, low, high, step = 0.01, log = false, format = String, ticks = [], hint = "" }) {
  const holder = make("div", parent, { name: "slider" }), id = `slider-${(count += 1)}`;
  const head = make("div", holder, { name: "slider-head" });
  make("label", head, { text: label, for: id });
  const output = make("output", head, { for: id });
  const input = make("input", holder, { id, type: "range", min: 0, max: 1, step: "any" });
  if (hint) input.setAttribute("title", hint);
  const toShare = (value) => (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low));
  const stepped = (value) => Number((Math.round(value / step) * step).toFixed(10));
  const round = (value) => Math.min(Math.max(log ? (step >= 1 ? stepped(value) : Number(value.toPrecision(3))) : stepped(value), low), high);
  const toValue = (share) => round(log ? low * (high / low) ** share : low + share * (high - low));
  const list = make("div", holder, { name: "ticks", "aria-hidden": "true" });
  for (const tick of ticks) {
    const { value, text } = typeof tick === "object" ? tick : { value: tick, text: format(tick) };
    make("span", list, { text }).style.left = `${100 * toShare(value)}%`;
  }
  input.addEventListener("input", () => state.set({ [field]: toValue(Number(input.value)) }));
  input.addEventListener("keydown", (event) => {
    const direction = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 5, PageDown: -5 }[event.key];
    if (!direction) return;
    event.preventDefault();
    const value = state.get(field), by = event.shiftKey ? 5 * direction : direction;
    const next = log ? toValue(toShare(value) + by / 50) : round(value + by * step);
    state.set({ [field]: next === value ? round(value + by * step) : next });
  });
  function show() {
    const value = state.get(field);
    input.value = toShare(value);
    output.textContent = format(value);
    input.setAttribute("aria-valuetext", format(value));
    input.style.setProperty("--share", `${100 * toShare(value)}%`);
  }
  state.on(field, show);
  show();
  return { element: holder, input };
}

// One among few, as buttons side by side; options are words or {value, text, title}.
export function choice(parent, state, field, { label, options }) {
  const holder = make("div", parent, { name: "choice" });
  if (label) make("span", holder, { text: label, name: "choice-label" });
  const group = make("div", holder, { name: "segmented", role: "group", "aria-label": label || field });
  const buttons = options.map((option) => {
    const { value, text, title } = typeof option === "object" ? option : { value: option, text: String(option) };
    const button = make("button", group, title ? { text, title } : { text });
    button.addEventListener("click", () => state.set({ [field]: value }));
    return [value, button];
  });
  const show = () => buttons.forEach(([value, button]) => button.setAttribute("aria-pressed", String(value === state.get(field))));
  state.on(field, show);
  show();
  return holder;
}

export function toggle(parent, state, field, { label }) {
  const holder = make("label", parent, { name: "toggle" }), box = make("input", holder, { type: "checkbox" });
  make("span", holder, { text: label });
  box.addEventListener("change", () => state.set({ [field]: box.checked }));
  const show = () => { box.checked = state.get(field); };
  state.on(field, show);
  show();
  return box;
}

export function button(parent, text, act, { name = "", title = "" } = {}) {
  const element = make("button", parent, { text, name: `plain ${name}`.trim(), ...(title ? { title } : {}) });
  element.addEventListener("click", act);
  return element;
}

// Settings to start from: {text, values}.
export function presets(parent, state, list, label = "Presets") {
  const group = make("div", parent, { name: "presets", role: "group", "aria-label": label });
  make("span", group, { text: label, name: "choice-label" });
  for (const { text, values, title } of list) button(group, text, () => state.set(values), { title });
  return group;
}

// Text that someone types; it enters the page as text only.
export function textField(parent, state, field, { label, longest = 400, placeholder = "" }) {
  const id = `text-${(count += 1)}`, holder = make("div", parent, { name: "text-field" });
  make("label", holder, { text: label, for: id });
  const input = make("input", holder, { id, type: "text", maxlength: longest, placeholder, spellcheck: "false", autocomplete: "off" });
  input.addEventListener("input", () => state.set({ [field]: input.value }));
  const show = () => { if (input.value !== state.get(field)) input.value = state.get(field); };
  state.on(field, show);
  show();
  return input;
}

// A number with a name, such as "entropy 0.69".
export function reading(parent, label, title = "") {
  const holder = make("div", parent, { name: "reading", ...(title ? { title } : {}) });
  make("span", holder, { text: label, name: "reading-label" });
  const value = make("span", holder, { name: "reading-value" });
  return (text) => { if (value.textContent !== text) value.textContent = text; };
}
