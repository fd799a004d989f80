// From the bytes of tiles to colors.

import { valueOf } from "./codec.js";
import { RAMPS, ramp } from "./shared/colors.js";

// Where a value (log2 of a multiple of uniform) stands between the ends of the colors, 0 to 1.
export function fraction(value, { low, high, linear, balanced }) {
  if (linear && balanced && high > 0) return value < 0 ? 0.5 * 2 ** value : 0.5 + 0.5 * Math.min((2 ** value - 1) / (2 ** high - 1), 1);
  if (linear) return Math.min(2 ** (value - high), 1);
  if (balanced) return value < 0 ? 0.5 * (1 - Math.min(value / low, 1)) : 0.5 + 0.5 * Math.min(value / high, 1);
  return Math.min(Math.max((value - low) / (high - low), 0), 1);
}

// The same of a difference, a multiple of uniform with its sign: 0.5 is none.
export function signedFraction(value, { low, high, linear }) {
  if (value === 0) return 0.5;
  const size = linear ? Math.abs(value) / 2 ** high : (Math.log2(Math.abs(value)) - low) / (high - low);
  return 0.5 + 0.5 * Math.sign(value) * Math.min(Math.max(size, 0), 1);
}

// The colors of all 256 bytes, as one number each in the memory order of ImageData; clear where nothing is to be drawn.
export class Palette {
  constructor({ name, dark, linear, low, high, threshold, coding, ground }) {
    this.signed = Boolean(coding.signed);
    this.name = this.signed ? "balance" : name;
    this.stops = RAMPS[this.name][dark ? "dark" : "light"];
    this.scale = { low, high, linear, balanced: name === "balance", signed: this.signed };
    this.threshold = threshold;
    this.coding = coding;
    const table = new Uint8ClampedArray(1024);
    for (let byte = 1; byte < 256; byte++) {
      const value = valueOf(byte, coding);
      table.set([...(this.below(value) ? ground : this.color(value)), 255], 4 * byte);
    }
    this.table = new Uint32Array(table.buffer);
  }

  // `value`: as `valueOf` gives it.
  color(value) {
    return ramp(this.stops, this.signed ? signedFraction(value, this.scale) : fraction(value, this.scale));
  }

  // Whether the threshold hides it.
  below(value) {
    return this.threshold !== null && (this.signed ? Math.abs(value) < 2 ** this.threshold : value < this.threshold);
  }

  // Where a multiple of uniform, with its sign if it is a difference, stands between the ends of the scale; and its color,
  // null where there is none.
  height(multiple) {
    if (this.signed) return signedFraction(multiple, this.scale);
    return multiple > 0 ? fraction(Math.log2(multiple), this.scale) : 0;
  }

  tint(multiple) {
    const value = this.signed ? multiple : Math.log2(multiple);
    return multiple === 0 || this.below(value) ? null : this.color(value);
  }

  paint(bytes, side) {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = side;
    const image = new ImageData(side, side), pixels = new Uint32Array(image.data.buffer), table = this.table;
    for (let n = 0; n < pixels.length; n++) pixels[n] = table[bytes[n]];
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }
}
