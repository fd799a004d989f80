// From weights to colors.

function color(fraction) {
  const place = clamp(fraction, 0, 1) * (data.ramp.length - 1);
  const step = Math.min(Math.floor(place), data.ramp.length - 2), part = place - step;
  return data.ramp[step].map((low, n) => Math.round(low + (data.ramp[step + 1][n] - low) * part));
}
const table = Array.from({ length: 256 }, (_, n) => color(n / 255));

function range(cells, start, stop, power) {
  let low = Infinity, high = -Infinity;
  for (let n = start; n < stop; n++) {
    if (!Number.isFinite(cells[n])) continue;
    low = Math.min(low, cells[n]);
    high = Math.max(high, cells[n]);
  }
  if (!(high > -Infinity)) return { low: 0, high: 1, power };
  if (low >= 0) low = 0;
  return { low, high: high > low ? high : low + 1, power };
}

let ofWords = {};
function limits(layer, head) {
  const [low, high, power] = data.views[state.view].limits;
  const size = layer.down.count * layer.across.count;
  if (state.own) return range(layer.cells[state.view], head * size, (head + 1) * size, power);
  if (!state.words) return { low, high, power };
  return ofWords[state.view] = ofWords[state.view] || shown.map((n) => layers()[n])
    .map((each) => range(each.cells[state.view], 0, each.cells[state.view].length, power))
    .reduce((one, other) => ({ low: Math.min(one.low, other.low), high: Math.max(one.high, other.high), power }));
}

// One dot for the largest of `step` × `step` cells; the hidden ones stay clear, so that the page shows through.
function image(layer, head, step) {
  const scale = limits(layer, head), rows = layer.down.count, columns = layer.across.count;
  const wide = Math.max(Math.ceil(columns / step), 1), high = Math.max(Math.ceil(rows / step), 1);
  const largest = new Float32Array(wide * high).fill(-Infinity), cells = layer.cells[state.view];
  for (let row = 0, n = head * rows * columns; row < rows; row++) {
    for (let column = 0; column < columns; column++, n++) {
      const dot = Math.floor(row / step) * wide + Math.floor(column / step);
      if (cells[n] > largest[dot] || Number.isNaN(cells[n])) largest[dot] = cells[n];
    }
  }
  const picture = new ImageData(wide, high);
  largest.forEach((value, dot) => {
    if (value === -Infinity) return;
    const share = clamp((value - scale.low) / (scale.high - scale.low), 0, 1);
    const known = !Number.isNaN(value);
    const [red, green, blue] = known ? table[Math.round(Math.pow(share, scale.power) * 255)] : [230, 0, 120];
    picture.data.set([red, green, blue, 255], 4 * dot);
  });
  const canvas = document.createElement("canvas");
  canvas.width = wide;
  canvas.height = high;
  canvas.getContext("2d").putImageData(picture, 0, 0);
  return canvas;
}
