// The frame: a list of chapters and one chapter at a time. What is shown stands in the address.

import * as attention from "./attention.js";
import { chapters } from "./chapters.js";
import { isDark } from "./draw.js";
import { exercise } from "./exercise.js";
import { readAddress, readFields, whole, writeAddress } from "./fields.js";
import { prediction } from "./questions.js";
import { iconButton, make } from "./shared/dom.js";
import { State, debounce } from "./shared/state.js";
import { stepper } from "./steps.js";

const root = document.documentElement, data = JSON.parse(document.getElementById("data").textContent);
const token = document.querySelector('meta[name="regard-token"]')?.content ?? null;
const darkness = window.matchMedia("(prefers-color-scheme: dark)"), stillness = window.matchMedia("(prefers-reduced-motion: reduce)");
const frames = []; // milliseconds of the latest frames, for tests
let current = null, written = "", due = 0;

// --- what stands still ---

const app = make("div", document.body, { name: "app" }), skip = make("a", app, { text: "Skip to the chapter", name: "skip", href: "#chapter" });
const top = make("header", app, { name: "top" }), brand = make("a", top, { name: "brand", href: "#chapter=" });
make("span", brand, { text: "regard", name: "wordmark" });
make("span", brand, { text: "attention playground", name: "soft" });
const tools = make("div", top, { name: "tools" });
const link = iconButton("link", tools, "Copy the address of this setting"), theme = iconButton("theme", tools, "Light or dark");
const told = make("div", tools, { name: "told", role: "status" });
const nav = make("nav", app, { name: "contents", "aria-label": "Chapters" }), list = make("ol", nav);
const main = make("main", app, { id: "chapter", tabindex: -1 });
const entries = chapters.map((chapter) => {
  const entry = make("a", make("li", list), { href: `#chapter=${chapter.name}` });
  make("span", entry, { text: String(chapter.number), name: "number" });
  make("span", entry, { text: chapter.title });
  return entry;
});

// --- one chapter ---

function open(chapter, given) {
  const fields = { ...chapter.fields, ...(chapter.small ? { step: whole(0, 0, 20), row: whole(chapter.row ?? 0, 0, 4096) } : {}) };
  const state = new State(readFields(fields, given));
  main.replaceChildren();
  main.dataset.chapter = chapter.name;
  main.classList.toggle("wide", Boolean(chapter.wide));
  const head = make("header", main, { name: "chapter-head" });
  make("p", head, { text: `Chapter ${chapter.number}`, name: "kicker" });
  make("h1", head, { text: chapter.title });
  make("p", head, { text: chapter.text.join(" "), name: "lead" });
  prediction(main, chapter.predict);
  const stage = make("section", main, { name: "stage", "aria-label": chapter.title });
  const draw = chapter.build(stage, { state, data: data.chapters[chapter.number] ?? null, live: token, still: () => stillness.matches });
  const steps = chapter.small ? stepper(main, state, chapter.small) : null;
  const notice = make("section", main, { name: "notice", "aria-label": "What to notice" });
  make("h2", notice, { text: "What to notice" });
  const points = make("ul", notice);
  for (const text of chapter.notice) make("li", points, { text });
  if (chapter.exercise) exercise(main, chapter.exercise, data.exercises);
  measured(chapter.experiments);
  ends(chapter);
  current = { chapter, fields, state, draw, steps };
  state.on(Object.keys(fields).join(" "), () => { frame(); save(); });
  entries.forEach((entry, n) => { if (chapters[n] === chapter) entry.setAttribute("aria-current", "page"); else entry.removeAttribute("aria-current"); });
  reveal(entries[chapters.indexOf(chapter)]);
  document.title = `${chapter.title} · regard`;
  paint();
}

// Scrolls only the list: scrollIntoView would also move the place from which Tab goes on.
function reveal(entry) {
  const frame = list.getBoundingClientRect(), box = entry.getBoundingClientRect();
  list.scrollLeft += (box.left + box.right - frame.left - frame.right) / 2;
  list.scrollTop += Math.min(box.top - frame.top, 0) + Math.max(box.bottom - frame.bottom, 0);
}

function measured(experiments) {
  const section = make("section", main, { name: "measured", "aria-label": "Measured" });
  make("h2", section, { text: "Measure it" });
  for (const { command, about } of experiments) {
    const line = make("p", section);
    make("code", line, { text: command });
    line.append(` ${about}`);
  }
}

function ends(chapter) {
  const at = chapters.indexOf(chapter), section = make("nav", main, { name: "ends", "aria-label": "Neighboring chapters" });
  for (const [other, word] of [[chapters[at - 1], "Previous"], [chapters[at + 1], "Next"]]) {
    if (!other) { make("span", section); continue; }
    const way = make("a", section, { href: `#chapter=${other.name}` });
    make("span", way, { text: word, name: "soft" });
    make("span", way, { text: `${other.number} · ${other.title}` });
  }
}

// All changes until the next frame are drawn at once.
function frame() {
  if (!due) due = requestAnimationFrame(() => { due = 0; paint(); });
}
function paint() {
  const began = performance.now();
  current.draw();
  if (current.steps) current.steps.update();
  frames.push(performance.now() - began);
  if (frames.length > 1000) frames.shift();
}

// --- the address ---

const save = debounce(120, () => {
  written = writeAddress(current.chapter.name, current.fields, current.state.values);
  try { history.replaceState(null, "", written); } catch { /* a frame of a notebook has no address of its own */ }
});
function read() {
  if (location.hash === written && current) return;
  const { name, given } = readAddress(location.hash), chapter = chapters.find((each) => each.name === name) ?? chapters[0];
  const again = current && current.chapter === chapter, inside = main.contains(document.activeElement);
  save.cancel();
  written = location.hash;
  open(chapter, given);
  if (inside) main.focus({ preventScroll: true }); // what had the focus is gone
  if (!again) window.scrollTo(0, 0);
}
window.addEventListener("hashchange", read);

// In a frame without an address of its own, links change the chapter directly.
app.addEventListener("click", (event) => {
  const way = event.target.closest?.('a[href^="#chapter="]');
  if (!way || location.protocol !== "about:") return;
  event.preventDefault();
  const { name, given } = readAddress(way.getAttribute("href"));
  open(chapters.find((each) => each.name === name) ?? chapters[0], given);
  main.focus();
});

skip.addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
link.addEventListener("click", async () => {
  const text = location.href.replace(/#.*$/, "") + writeAddress(current.chapter.name, current.fields, current.state.values);
  try {
    await navigator.clipboard.writeText(text);
    told.textContent = "copied";
  } catch {
    told.textContent = "the address bar has it";
  }
  setTimeout(() => { told.textContent = ""; }, 2000);
});

// --- light and dark ---

function shadeAs(dark) {
  root.dataset.theme = dark ? "dark" : "light";
  if (current) paint();
}
darkness.addEventListener("change", () => shadeAs(darkness.matches));
theme.addEventListener("click", () => shadeAs(!isDark()));

shadeAs(darkness.matches);
read();
window.regardPlay = {
  attention, frames, ready: performance.now(),
  chapters: chapters.map(({ build, small, fields, ...rest }) => ({ ...rest, fields: Object.keys(fields), steps: Boolean(small) })),
  get state() { return { ...current.state.values }; },
  get idle() { return !due && !save.busy() && (location.hash === written || location.hash === ""); },
  get address() { return writeAddress(current.chapter.name, current.fields, current.state.values); },
  set: (values) => current.state.set(values),
};
