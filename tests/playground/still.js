// A picture of the page as markup that needs no style sheet: what the style says of each element is written into it.

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "fill-opacity", "opacity", "font-size", "font-weight", "paint-order", "stroke-linejoin"];
const USUAL = { "fill": "rgb(0, 0, 0)", "stroke": "none", "stroke-width": "1px", "stroke-dasharray": "none", "stroke-opacity": "1", "fill-opacity": "1", "opacity": "1", "font-size": "16px", "font-weight": "400", "paint-order": "normal", "stroke-linejoin": "miter" };
const KEPT = ["x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "width", "height", "d", "points", "transform", "text-anchor", "id", "patternUnits", "patternTransform", "dominant-baseline"];
const TEXT = ["font-size", "font-weight", "paint-order"];

function still(element, prefix) {
  if (element.nodeName === "title" || element.classList.contains("finger")) return null;
  const copy = document.createElementNS("http://www.w3.org/2000/svg", element.nodeName), style = getComputedStyle(element);
  if (style.display === "none" || style.visibility === "hidden") return null;
  for (const name of KEPT) if (element.hasAttribute(name)) copy.setAttribute(name, (name === "id" ? prefix : "") + element.getAttribute(name));
  const holds = ["g", "defs", "pattern", "svg"].includes(element.nodeName), isText = ["text", "tspan"].includes(element.nodeName);
  for (const name of STYLES) {
    const value = style.getPropertyValue(name);
    if (value === USUAL[name] || (holds && name !== "opacity") || (!isText && TEXT.includes(name))) continue;
    if (name.startsWith("stroke-") && style.stroke === "none") continue;
    copy.setAttribute(name, value.replace(/^url\("?#(.*?)"?\)$/, `url(#${prefix}$1)`).replace(/px\b/g, ""));
  }
  const children = [...element.children].map((child) => still(child, prefix)).filter(Boolean);
  if (children.length) copy.append(...children);
  else if (isText) copy.textContent = element.textContent;
  return holds && !children.length ? null : copy;
}

function taken({ label, prefix }) {
  const svg = [...document.querySelectorAll(".stage svg")].find((each) => each.getAttribute("aria-label") === label);
  const { width, height } = svg.viewBox.baseVal, group = document.createElementNS("http://www.w3.org/2000/svg", "g");
  group.append(...[...svg.children].map((child) => still(child, prefix)).filter(Boolean));
  return { width, height, markup: new XMLSerializer().serializeToString(group).replace(' xmlns="http://www.w3.org/2000/svg"', "") };
}
