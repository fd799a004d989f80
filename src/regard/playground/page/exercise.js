// An exercise of `regard exercise`, checked in the page with the same answers and the same known mistakes.

import { make } from "./shared/dom.js";

export function exercise(parent, { number, parts }, exercises) {
  const section = make("section", parent, { name: "exercise", "aria-label": "Exercise" });
  make("h2", section, { text: "Exercise" });
  const line = make("p", section);
  make("code", line, { text: `regard exercise ${number}` });
  line.append(" asks for the numbers behind this chapter.");
}
