// What a chapter remembers, and how it is written in the address. A field has an initial value, reads text, and writes it;
// what cannot be read, or lies outside, is left at its initial value.

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const trimmed = (value, digits) => String(Number(value.toFixed(digits)));
const finite = (text) => (/^-?\d{1,15}(\.\d{1,15})?(e-?\d{1,3})?$/.test(text) ? Number(text) : NaN);

function field(initial, read, write) {
  return { initial, read, write, same: (one, other) => write(one) === write(other) };
}

export function number(initial, low, high, digits = 3) {
  return field(initial, (text) => { const x = finite(text); return Number.isFinite(x) ? clamp(x, low, high) : undefined; }, (value) => trimmed(value, digits));
}

export function whole(initial, low, high) {
  return field(initial, (text) => (/^-?\d{1,12}$/.test(text) ? clamp(Number(text), low, high) : undefined), String);
}

export function word(initial, words) {
  return field(initial, (text) => (words.includes(text) ? text : undefined), String);
}

export const flag = (initial = false) => field(initial, (text) => (text === "1" ? true : text === "0" ? false : undefined), (value) => (value ? "1" : "0"));

// Numbers from −limit to limit, `count` of them, or as many as there are.
export function vector(initial, limit, digits = 2, count = initial.length) {
  const read = (text) => {
    const numbers = text.split(",").map(finite);
    return numbers.length === count && numbers.every(Number.isFinite) ? numbers.map((x) => clamp(x, -limit, limit)) : undefined;
  };
  return field(initial, read, (value) => value.map((x) => trimmed(x, digits)).join(","));
}

// A list of vectors: "1,0;0,1".
export function vectors(initial, limit, digits = 2, most = 16) {
  const one = vector(initial[0], limit, digits);
  const read = (text) => {
    const rows = text.split(";").map((part) => one.read(part));
    return rows.length >= 1 && rows.length <= most && rows.every(Boolean) ? rows : undefined;
  };
  return field(initial, read, (value) => value.map(one.write).join(";"));
}

// A set of small numbers, such as the cells of a mask that someone drew.
export function numbers(initial, low, high, most = 4096) {
  const read = (text) => {
    const list = text === "" ? [] : text.split(".").map((part) => (/^-?\d{1,6}$/.test(part) ? Number(part) : NaN));
    return list.length <= most && list.every((n) => n >= low && n <= high) ? list : undefined;
  };
  return field(initial, read, (value) => value.join("."));
}

export const text = (initial, longest = 400) => field(initial, (given) => given.slice(0, longest), String);

// --- the address: #chapter=temperature&tau=0.5 ---

export function writeAddress(name, fields, values) {
  const parts = [`chapter=${encodeURIComponent(name)}`];
  for (const [key, each] of Object.entries(fields)) {
    if (!each.same(values[key], each.initial)) parts.push(`${key}=${encodeURIComponent(each.write(values[key])).replace(/%2C/g, ",").replace(/%3B/g, ";")}`);
  }
  return `#${parts.join("&")}`;
}

export function readAddress(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, "").replace(/\+/g, "%2B"));
  return { name: given.get("chapter") ?? "", given };
}

export function readFields(fields, given) {
  return Object.fromEntries(Object.entries(fields).map(([key, each]) => {
    const text = given.get(key), value = text === null ? undefined : each.read(text);
    return [key, value === undefined ? each.initial : value];
  }));
}
