// Colors: ramps with even steps of lightness in OKLab, so that their order holds in print and for every kind of color
// vision. On a dark page strong is bright, on a light one dark. "balance" has two sides: below and above uniform, or of a
// difference below and above 0.

import { valueOf } from "./codec.js";

export const RAMPS = {
  tide: {
    light: [[250, 249, 222], [210, 229, 179], [153, 212, 164], [94, 190, 172], [48, 163, 174], [1, 133, 176], [22, 101, 169], [30, 71, 152], [34, 43, 127]],
    dark: [[27, 31, 57], [37, 52, 102], [38, 76, 150], [1, 113, 164], [10, 148, 172], [36, 182, 175], [103, 212, 168], [190, 232, 168], [253, 250, 196]],
  },
  ember: {
    light: [[253, 247, 225], [240, 215, 165], [232, 180, 106], [225, 139, 59], [216, 95, 24], [189, 61, 28], [160, 22, 31], [118, 14, 35], [78, 9, 29]],
    dark: [[39, 26, 38], [81, 35, 65], [129, 39, 82], [172, 57, 79], [213, 81, 64], [236, 122, 57], [252, 165, 67], [251, 210, 134], [255, 248, 206]],
  },
  gray: {
    light: [[243, 243, 243], [212, 212, 212], [181, 181, 181], [152, 152, 152], [123, 123, 123], [95, 95, 95], [69, 69, 69], [45, 45, 45], [22, 22, 22]],
    dark: [[31, 31, 31], [54, 54, 54], [79, 79, 79], [105, 105, 105], [132, 132, 132], [160, 160, 160], [189, 189, 189], [219, 219, 219], [250, 250, 250]],
  },
  balance: {
    light: [[0, 70, 140], [62, 114, 171], [119, 157, 197], [178, 200, 222], [247, 243, 239], [226, 195, 175], [204, 148, 113], [181, 99, 52], [145, 57, 0]],
    dark: [[129, 207, 252], [104, 159, 194], [79, 114, 138], [54, 72, 86], [37, 33, 29], [89, 67, 48], [145, 106, 66], [204, 148, 82], [254, 197, 126]],
  },
};

export function ramp(stops, fraction) {
  const place = Math.min(Math.max(fraction, 0), 1) * (stops.length - 1);
  const step = Math.min(Math.floor(place), stops.length - 2), part = place - step;
  return stops[step].map((low, n) => Math.round(low + (stops[step + 1][n] - low) * part));
}

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
