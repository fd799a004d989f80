// What is shown, as the part of the address after #: it can be sent to someone, and back and forward work.
// at=query,key,pixels-per-weight is the middle of the view; without it the whole matrix is shown.

import { MODES, readPlace } from "./compare.js";

const WORDS = { mode: MODES, statistic: ["max", "mean"], scale: ["log", "linear"], ramp: ["tide", "ember", "gray", "balance"], text: ["reads", "read"] };
const PLACES = ["layer", "batch", "head"];

export function write({ state, at }) {
  const parts = [];
  for (const name of PLACES) if (state[name]) parts.push(`${name}=${state[name]}`);
  if (state.other) parts.push(`compare=${state.other}`);
  if (at) parts.push(`at=${trim(at.q, 3)},${trim(at.k, 3)},${Number(at.scale.toPrecision(7))}`);
  for (const name of ["row", "column"]) if (state[name] !== null) parts.push(`${name}=${state[name]}`);
  for (const [name, [first]] of Object.entries(WORDS)) if (state[name] !== first && (name !== "mode" || state.other)) parts.push(`${name}=${state[name]}`);
  if (state.threshold !== null) parts.push(`threshold=${trim(state.threshold, 3)}`);
  return `#${parts.join("&")}`;
}

const trim = (value, digits) => String(Number(value.toFixed(digits)));

// What is not understood, or lies outside of the matrix, is left out.
export function read(hash, info) {
  const given = new Map(new URLSearchParams(hash.replace(/^#/, "")));
  const whole = (name, below) => {
    const text = given.get(name), value = Number(text);
    return /^\d+$/.test(text ?? "") && value < below ? value : null;
  };
  const layer = whole("layer", info.layers.length) ?? 0, of = info.layers[layer];
  const state = { layer, batch: whole("batch", of.batch) ?? 0, head: whole("head", of.heads) ?? 0 };
  state.other = readPlace(given.get("compare"), info, of) ? given.get("compare") : null;
  state.row = whole("row", of.queries);
  state.column = whole("column", of.keys);
  for (const [name, words] of Object.entries(WORDS)) state[name] = words.includes(given.get(name)) ? given.get(name) : words[0];
  const threshold = Number(given.get("threshold"));
  state.threshold = given.get("threshold") && Number.isFinite(threshold) ? threshold : null;
  const at = (given.get("at") || "").split(",").map(Number);
  const known = at.length === 3 && at.every(Number.isFinite) && at[2] > 0;
  return { state, at: known ? { q: at[0], k: at[1], scale: at[2] } : null };
}
