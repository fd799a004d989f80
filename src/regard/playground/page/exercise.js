// An exercise of `regard exercise`, checked in the page with the same answers and the same known mistakes (check.js).

import { check } from "./check.js";
import { heatmap } from "./heatmap.js";
import { make } from "./shared/dom.js";

export function exercise(parent, { number, parts = null }, exercises) {
  const given = exercises[number], section = make("section", parent, { name: "exercise", "aria-label": "Exercise" });
  make("h2", section, { text: "Exercise" });
  const title = make("p", section, { name: "exercise-title" });
  make("strong", title, { text: given.title });
  make("pre", section, { text: given.task, name: "task", tabindex: 0, role: "region", "aria-label": "Task" });
  if (given.picture) heatmap(section, { label: given.picture.title }).update({ values: given.picture.values, rows: given.picture.row_labels, columns: given.picture.column_labels });
  const form = make("div", section, { name: "answers" });
  const all = Object.keys(given.parts), names = all.filter((name) => parts === null || parts.includes(name));
  if (names.length < all.length) make("p", form, { text: `Asked here: ${names.slice(0, -1).join(", ")}${names.length > 1 ? " and " : ""}${names[names.length - 1]}.`, name: "part-note" });
  const asked = names.map((name) => part(form, name, given.parts[name]));
  const bar = make("div", section, { name: "controls" }), button = make("button", bar, { text: "Check", name: "plain strong" });
  const summary = make("span", bar, { role: "status", name: "soft" });

  function judge() {
    const answer = Object.fromEntries(asked.filter((one) => one.read() !== undefined).map((one) => [one.name, one.read()]));
    const verdicts = check(given, answer);
    for (const one of asked) one.show(verdicts.find((verdict) => verdict.part === one.name));
    const right = verdicts.filter((verdict) => verdict.right).length;
    summary.textContent = verdicts.length ? `${right} of ${verdicts.length} right${verdicts.length < asked.length ? `, ${asked.length - verdicts.length} open` : ""}` : "nothing is filled in yet";
  }
  button.addEventListener("click", judge);
  form.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target.tagName === "INPUT") judge(); });
  if (given.solution) {
    const worked = make("details", section);
    make("summary", worked, { text: "The worked answer" });
    make("pre", worked, { text: given.solution, name: "task", tabindex: 0, role: "region", "aria-label": "The worked answer" });
  }
  const line = make("p", section, { name: "part-note" });
  make("code", line, { text: `regard exercise ${number}` });
  line.append(` asks ${names.length < all.length ? "for all parts" : "the same"} in a terminal.`);
  return section;
}

function part(parent, name, { kind, hint, shape = [], options = [], items = [] }) {
  const holder = make("fieldset", parent, { name: "answer" });
  make("legend", holder, { text: name });
  const read = { numbers: () => numbers(holder, name, shape), choice: () => choice(holder, options), selection: () => selection(holder, items) }[kind]();
  const help = make("button", holder, { text: "hint", name: "plain small", "aria-label": `hint for ${name}` });
  const said = make("p", holder, { name: "verdict", role: "status" });
  help.addEventListener("click", () => { said.className = "verdict"; said.textContent = `Hint: ${hint}`; });
  return {
    name, read,
    show(verdict) {
      said.className = `verdict${verdict ? (verdict.right ? " right" : verdict.follows ? "" : " wrong") : ""}`;
      said.textContent = verdict ? `${verdict.right ? "✓" : verdict.follows ? "↳" : "✗"} ${verdict.text}` : "";
    },
  };
}

// Fields for a number, a list or a matrix. Undefined while all are empty; what is typed is a number or an expression.
function numbers(parent, name, shape) {
  const [rows, columns] = shape.length === 2 ? shape : [1, shape[0] ?? 1], grid = make("div", parent, { name: "fields" });
  const fields = Array.from({ length: rows }, (_, i) => {
    const line = make("div", grid, { name: "fields-row" });
    return Array.from({ length: columns }, (_, j) => {
      const place = shape.length === 2 ? `, row ${i + 1}, column ${j + 1}` : shape.length ? `, number ${j + 1}` : "";
      return make("input", line, { type: "text", inputmode: "text", maxlength: 40, autocomplete: "off", spellcheck: "false", "aria-label": `${name}${place}` });
    });
  });
  return () => {
    const table = fields.map((line) => line.map((field) => field.value.trim()));
    if (table.flat().every((text) => text === "")) return undefined;
    return shape.length === 0 ? table[0][0] : shape.length === 1 ? table[0] : table;
  };
}

function choice(parent, options) {
  const group = make("div", parent, { name: "segmented", role: "group" });
  let chosen;
  for (const { value } of options) {
    const button = make("button", group, { text: value, "aria-pressed": "false" });
    button.addEventListener("click", () => {
      chosen = value;
      for (const each of group.children) each.setAttribute("aria-pressed", String(each === button));
    });
  }
  return () => chosen;
}

function selection(parent, items) {
  const list = make("div", parent, { name: "choices" });
  const boxes = items.map(({ value }) => {
    const holder = make("label", list, { name: "toggle" }), box = make("input", holder, { type: "checkbox" });
    make("span", holder, { text: [value].flat().join(" – ") });
    return [value, box];
  });
  return () => { const chosen = boxes.filter(([, box]) => box.checked).map(([value]) => value); return chosen.length ? chosen : undefined; };
}
