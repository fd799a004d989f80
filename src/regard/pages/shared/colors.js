// Colors: ramps with even steps of lightness in OKLab, so that their order holds in print and for every kind of color
// vision. On a dark page strong is bright, on a light one dark. "balance" has two sides: below and above uniform, or of a
// difference below and above 0.

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
