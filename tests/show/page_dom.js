// Runs the script of a page (argument 1) on a document made of records, points at a cell (arguments 2 and 3), and
// prints every text that the page holds. Setting markup is an error.
"use strict";
const fs = require("fs"), vm = require("vm");
const page = fs.readFileSync(process.argv[2], "utf8");
const data = page.match(/<script type="application\/json" id="data">([^]*?)<\/script>/)[1];
const script = page.match(/<script>([^]*?)<\/script>/)[1];
const drawn = [], listeners = {};
const context = new Proxy({ measureText: (text) => ({ width: 7 * text.length }), fillText: (text) => drawn.push(text) }, {
  get: (target, name) => target[name] || (() => undefined),
  set: () => true,
});
class Element {
  constructor(tag) { this.tag = tag; this.children = []; this.style = {}; this.text = ""; this.clientWidth = 1000; this.classList = { toggle() {} }; }
  set innerHTML(_) { throw new Error("markup"); }
  set outerHTML(_) { throw new Error("markup"); }
  insertAdjacentHTML() { throw new Error("markup"); }
  set textContent(text) { this.text = String(text); this.children = []; }
  get textContent() { return this.text; }
  get firstChild() { return this.children[0]; }
  append(child) { this.children.push(child); }
  replaceChildren() { this.children = []; this.text = ""; }
  setAttribute() {}
  addEventListener(kind, act) { if (kind === "pointermove") listeners.move = act; }
  getBoundingClientRect() { return { left: 0, top: 0 }; }
  getContext() { return context; }
  texts() { return [this.text, ...this.children.flatMap((child) => child.texts())].filter(Boolean); }
}
const body = new Element("body");
const document = {
  body,
  documentElement: new Element("html"),
  createElement: (tag) => { if (tag === "script") throw new Error("script"); return new Element(tag); },
  getElementById: () => ({ textContent: data }),
};
const window = { innerWidth: 1000, innerHeight: 800, addEventListener() {}, matchMedia: () => ({ matches: false, addEventListener() {} }) };
class ImageData { constructor(width, height) { this.width = width; this.height = height; this.data = new Uint8ClampedArray(4 * width * height); } }
vm.runInNewContext(script, {
  document, window, ImageData, atob, Float32Array, Uint8Array, getComputedStyle: () => ({ getPropertyValue: () => "#000" }),
});
const labels = [...drawn], wanted = `query ${process.argv[3]}`, other = `key ${process.argv[4]}`;
const tip = () => body.children[body.children.length - 1].texts();
search: for (let y = 0; y < 800; y += 4) {
  for (let x = 0; x < 1000; x += 4) {
    listeners.move({ clientX: x, clientY: y });
    const [query, key] = tip();
    if (query && query.split(":")[0] === wanted && key.split(":")[0] === other) break search;
  }
}
console.log(JSON.stringify({ labels, tip: tip(), texts: body.texts() }));
