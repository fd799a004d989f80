// Numbers and tokens as people read them.

const DOTS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export const position = (value) => DOTS.format(value);

export function weight(value) {
  if (value === 0) return "0";
  return Math.abs(value) >= 1e-4 ? String(Number(value.toPrecision(6))) : value.toExponential(4);
}

// In a list.
export const brief = (value) => (value === 0 || Math.abs(value) >= 1e-4 ? String(Number(value.toPrecision(3))) : value.toExponential(1));

// A multiple of the uniform weight: 1× is what every key would get if all got the same.
export function multiple(value) {
  if (value >= 9.95) return `${DOTS.format(Number(value.toPrecision(3)))}×`;
  if (value >= 0.1 || value === 0) return `${Number(value.toPrecision(2))}×`;
  const part = 1 / value;
  return part < 1e6 ? `1/${DOTS.format(Number(part.toPrecision(2)))}×` : `${value.toExponential(1)}×`;
}

// The same of a difference, and a difference of weights.
export const signedMultiple = (value) => `${signOf(value)}${multiple(Math.abs(value))}`;
export const signedWeight = (value, told = weight) => `${signOf(value)}${told(Math.abs(value))}`;
const signOf = (value) => (value > 0 ? "+" : value < 0 ? "−" : "");

export const count = (number, one, many = `${one}s`) => `${position(number)} ${number === 1 ? one : many}`;

const HIDDEN = /[\u0080-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

// As in the pictures: a line break is ␊, a tab ␉, spaces alone ␣; what would join or reorder its neighbors is spelled.
export function tokenLabel(token) {
  if (token === "") return '""';
  if (/^ +$/.test(token)) return "␣".repeat(token.length);
  return token
    .replace(/[\u0000-\u001f]/g, (sign) => String.fromCharCode(0x2400 + sign.charCodeAt(0)))
    .replace(/\u007f/g, "␡")
    .replace(HIDDEN, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// A token in running text: its spaces and line breaks stay, a line break can be seen and clicked.
export function textLabel(text) {
  return text
    .replace(/[\u0000-\u0009\u000b-\u001f]/g, (sign) => (sign === "\t" ? "⇥\t" : String.fromCharCode(0x2400 + sign.charCodeAt(0))))
    .replace(/\u007f/g, "␡")
    .replace(/\n/g, "↵\n")
    .replace(HIDDEN, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export function shorten(text, most) {
  const letters = Array.from(text);
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
}

// Round steps 1, 2, 5, 10, …, none smaller than `least`.
export function roundStep(least) {
  if (least <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].find((each) => each * power >= least * (1 - 1e-12));
  return step * power;
}
