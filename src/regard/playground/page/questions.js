// A question to predict first: options, and what is said once one is chosen.

import { make } from "./shared/dom.js";

export function prediction(parent, { question, options, answer, because }) {
  const section = make("section", parent, { name: "predict", "aria-label": "Predict first" });
  make("h2", section, { text: "Predict first" });
  make("p", section, { text: question });
  const list = make("div", section, { name: "options", role: "group", "aria-label": "Answers" });
  const said = make("p", section, { name: "said", "aria-live": "polite" });
  said.hidden = true;
  const buttons = options.map((text, n) => {
    const button = make("button", list, { text, name: "plain option" });
    button.addEventListener("click", () => {
      buttons.forEach((each, m) => { each.setAttribute("aria-pressed", String(m === n)); each.classList.toggle("right", m === answer); each.classList.toggle("wrong", m === n && m !== answer); });
      said.textContent = `${n === answer ? "Yes." : "Not quite."} ${because}`;
      said.hidden = false;
    });
    return button;
  });
  return section;
}
