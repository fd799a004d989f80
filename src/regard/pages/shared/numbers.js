// Numbers that travel as text.

function bytes(text) {
  const letters = atob(text), array = new Uint8Array(letters.length);
  for (let n = 0; n < letters.length; n++) array[n] = letters.charCodeAt(n);
  return array;
}

let halves = null; // the number of each half-precision pattern
function halfTable() {
  if (halves) return halves;
  halves = new Float32Array(65536);
  for (let n = 0; n < 65536; n++) {
    const sign = n & 0x8000 ? -1 : 1, exponent = (n >> 10) & 31, fraction = n & 1023;
    if (exponent === 31) halves[n] = fraction ? NaN : sign * Infinity;
    else halves[n] = sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
  }
  return halves;
}

// Numbers in base64: float32, or float16 where `half`.
export function floats(text, half) {
  const buffer = bytes(text).buffer;
  return half ? Float32Array.from(new Uint16Array(buffer), (n) => halfTable()[n]) : new Float32Array(buffer);
}
