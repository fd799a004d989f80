// Words in a row whose order can be changed: by dragging one, or with the arrow keys.
//
//   const view = order(parent, state, "order", { label, words });  view.update();   state.order[place] = which word stands there

import { make } from "./shared/dom.js";

// A field for it: "2.0.1", every word once.
export function permutation(count) {
  const initial = Array.from({ length: count }, (_, n) => n), write = (value) => value.join(".");
  const read = (text) => {
    const list = text.split(".").map((part) => (/^\d{1,3}$/.test(part) ? Number(part) : -1));
    return [...list].sort((a, b) => a - b).every((n, at) => n === at) && list.length === count ? list : undefined;
  };
  return { initial, read, write, same: (one, other) => write(one) === write(other) };
}

export function order(parent, state, field, { label, words }) {
  const holder = make("div", parent, { name: "order", role: "group", "aria-label": label });
  const chips = words.map((word, which) => {
    const chip = make("span", null, { text: word, name: "order-word", role: "slider", tabindex: 0, "aria-valuemin": 1, "aria-valuemax": words.length });
    let held = false;
    chip.addEventListener("pointerdown", (event) => { event.preventDefault(); chip.setPointerCapture(event.pointerId); chip.focus(); held = true; chip.classList.add("held"); });
    chip.addEventListener("pointermove", (event) => {
      if (!held) return;
      const over = chips.findIndex((other) => { const box = other.getBoundingClientRect(); return event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top - 20 && event.clientY <= box.bottom + 20; });
      if (over >= 0 && over !== which) move(which, state.get(field).indexOf(over));
    });
    for (const end of ["pointerup", "pointercancel"]) chip.addEventListener(end, () => { held = false; chip.classList.remove("held"); });
    chip.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      move(which, state.get(field).indexOf(which) + by);
    });
    return chip;
  });

  function move(which, to) {
    if (to < 0 || to >= words.length) return;
    const rest = state.get(field).filter((each) => each !== which);
    state.set({ [field]: [...rest.slice(0, to), which, ...rest.slice(to)] });
  }

  // A chip that stays where it is is not touched, so that a pointer or the focus on it is not lost.
  function update() {
    const list = state.get(field);
    list.forEach((which, place) => {
      chips[which].style.order = String(place);
      for (const [name, value] of [["aria-label", `${words[which]}, arrow keys move it`], ["aria-valuenow", place + 1], ["aria-valuetext", `place ${place + 1} of ${words.length}`]]) chips[which].setAttribute(name, value);
    });
  }
  holder.append(...chips);
  return { update, element: holder };
}
