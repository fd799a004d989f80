// The check of an answer in a page: exercise.py, questions.py and numbers.py once more, on what `Exercise.data` gives.
// check(exercise, answer) gives {part, right, text, follows} for each part that the answer holds. Numbers may be texts
// such as "1/2" or "e^2". A test compares every verdict with Python's.

const FORMS = ["a number", "a list of numbers, as in [1, 2]", "a list of rows, as in [[1, 2], [3, 4]]"];
const EXPRESSION = "a number or an expression such as 0.5, 1/2, e^2 or sqrt(2)";
const COARSE = "right as far as it goes, but rounded too coarsely: give at least ";
const FUNCTIONS = {
  sqrt: Math.sqrt, exp: Math.exp, ln: Math.log, log: Math.log, tanh: Math.tanh, cos: Math.cos, sin: Math.sin,
};
const CONSTANTS = { e: Math.E, pi: Math.PI, "π": Math.PI };

const quoted = (text) => `'${text}'`;
const depth = (value) => (Array.isArray(value) ? 1 + depth(value[0]) : 0);
const flat = (value) => (Array.isArray(value) ? value.flat(Infinity) : [value]);
const shape = (value) => (Array.isArray(value) ? [value.length, ...shape(value[0])] : []);
const rows = (value) => (depth(value) === 2 ? value : [flat(value)]);
const map = (value, fn) => (Array.isArray(value) ? value.map((each) => map(each, fn)) : fn(value));
const total = (list) => list.reduce((sum, each) => sum + each, 0);
const dot = (one, other) => total(one.map((each, at) => each * other[at]));
const transposed = (table) => table[0].map((_, column) => table.map((row) => row[column]));
const unique = (list) => [...new Set(list)];
const python = (value) => (value === true ? "True" : value === false ? "False" : value === null ? "None"
  : typeof value === "string" ? quoted(value) : Array.isArray(value) ? `[${value.map(python).join(", ")}]` : String(value));

// An expression: sums of products of signed powers, by recursive descent.
export function evaluate(text) {
  const plain = text.replace(/−/g, "-").replace(/[·×]/g, "*").replace(/\*\*/g, "^").replace(/²/g, "^2")
    .replace(/√\s*([\p{L}\d_.]+)/gu, "sqrt($1)").replace(/√/g, "sqrt");
  const tokens = plain.match(/(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[\p{L}_]\w*|\S/gu) ?? [];
  const fail = () => { throw new Error(`give ${EXPRESSION}, got ${quoted(text.slice(0, 40))}`); };
  let at = 0;
  const take = (token) => tokens[at] === token && ++at > 0;
  const sum = () => {
    let value = product();
    for (;;) if (take("+")) value += product(); else if (take("-")) value -= product(); else return value;
  };
  const product = () => {
    let value = signed();
    for (;;) if (take("*")) value *= signed(); else if (take("/")) value /= signed(); else return value;
  };
  const signed = () => (take("-") ? -signed() : take("+") ? signed() : power());
  const power = () => { const base = atom(); return take("^") ? base ** signed() : base; };
  const atom = () => {
    const token = tokens[at++] ?? fail();
    if (/^[\d.]/.test(token)) return Number(token);
    if (token === "(") { const value = sum(); return take(")") ? value : fail(); }
    if (Object.hasOwn(FUNCTIONS, token) && take("(")) {
      const value = FUNCTIONS[token](sum());
      return take(")") ? value : fail();
    }
    return Object.hasOwn(CONSTANTS, token) ? CONSTANTS[token] : fail();
  };
  const value = plain.length > 200 ? fail() : sum();
  return at === tokens.length && Number.isFinite(value) ? value : fail();
}

// The number, list or matrix that was given; an Error says why it is none.
function read(given, axes) {
  const entry = (each) => {
    if (Array.isArray(each)) throw new Error(`give ${FORMS[axes]}`);
    if (typeof each === "string") return evaluate(each);
    if (typeof each !== "number") {
      throw new Error(`${axes === 0 ? `give ${FORMS[0]}` : "entries must be numbers"}, got ${python(each)}`);
    }
    if (!Number.isFinite(each)) throw new Error("entries must be finite numbers");
    return each;
  };
  if (axes === 0) {
    if (Array.isArray(given)) throw new Error(`give ${FORMS[0]}, not a list`);
    return entry(given);
  }
  if (!Array.isArray(given)) throw new Error(`give ${FORMS[axes]}`);
  if (given.length === 0 || (axes === 2 && Array.isArray(given[0]) && given[0].length === 0)) {
    throw new Error(`the ${axes === 1 ? "list" : "matrix"} is empty`);
  }
  if (axes === 1) return given.map(entry);
  if (!given.every(Array.isArray)) throw new Error(`give ${FORMS[2]}`);
  const lengths = given.map((row) => row.length);
  if (unique(lengths).length > 1) throw new Error(`rows must be equally long, got lengths ${lengths.join(", ")}`);
  return given.map((row) => row.map(entry));
}

const unit = (value, digits) => 10 ** (Math.floor(Math.log10(Math.max(Math.abs(value), 1e-300))) - digits + 1);
const slack = (value, { digits }) => (digits ? 0.5 * unit(value, digits) * (1 + 1e-9) : 0.005 + 1e-9);
const equal = (one, other) => Math.abs(one - other) <= 1e-9 * Math.min(Math.abs(other), 1);
const same = (given, value) => flat(given).every((each, at) => equal(each, flat(value)[at]));
const alike = (given, value) => String(shape(given)) === String(shape(value));

// Half of the last decimal or digit that counts; of a number above 1, one decimal is enough (7.4 for 7.389).
function agrees(given, value, accept) {
  const error = Math.abs(given - value);
  if (error <= slack(value, accept)) return true;
  const oneDecimal = equal(given * 10, Math.round(given * 10)) && !equal(given, Math.round(given));
  return !accept.digits && oneDecimal && Math.abs(value) >= 1 && error <= 0.05 + 1e-9;
}

const close = (given, value, accept) =>
  alike(given, value) && flat(given).every((each, at) => agrees(each, flat(value)[at], accept));

function softmax(row) {
  const powers = row.map((each) => Math.exp(each - Math.max(...row)));
  return powers.map((each) => each / total(powers));
}

const lse = (row) => Math.max(...row) + Math.log(total(row.map((each) => Math.exp(each - Math.max(...row)))));
const byRow = (fn) => (given) => (depth(given) === 2 ? given.map(fn) : fn(given));
const OPERATIONS = {
  times: (given, factor) => map(given, (each) => each * factor),
  sum: (given) => total(flat(given)),
  exp: (given) => map(given, Math.exp),
  softmax: byRow(softmax),
  lse: byRow(lse),
  flatten: (given) => flat(given),
  matmul: (given, other) => byRow((row) => (depth(other) === 2
    ? transposed(other).map((column) => dot(row, column)) : dot(row, other)))(given),
  ratio: (given, above, below) => given[above] / given[below],
  difference: (given, first, second) => given[first] - given[second],
  jacobian: (given) => given.map((each, i) => given.map((other, j) => (i === j ? each : 0) - each * other)),
};

function follows(given, part, answer) {
  if (!part.follows || !Object.hasOwn(answer, part.follows.part)) return false;
  for (const axes of [0, 1, 2]) {
    let value;
    try { value = read(answer[part.follows.part], axes); } catch { continue; }
    try {
      for (const [name, ...rest] of part.follows.steps) value = OPERATIONS[name](value, ...rest);
      return close(given, value, part.accept);
    } catch { return false; }
  }
  return false;
}

const known = (given, part) => part.mistakes.find(({ value }) => close(given, value, part.accept))?.text ?? "";

function wrongShape(given, part) {
  const size = part.shape, [axis, other] = part.axes;
  let wanted = `${size[0]} numbers, one for each ${axis}`, problem = `wrong length: ${given.length}`;
  if (size.length === 2) {
    wanted = `${size[0]} × ${size[1]}: a row for each ${axis}, a column for each ${other}`;
    problem = close(transposed(given), part.value, part.accept) ? "the numbers are right but transposed"
      : `wrong shape: ${shape(given).join(" × ")}`;
  }
  return `${known(given, part) || problem}; wanted is ${wanted}`;
}

// Whether every number is the value, rounded to a multiple of a step; a tie may be rounded either way.
const roundsTo = (given, value, step) => flat(given).every((each, at) => {
  const truth = flat(value)[at], size = step(truth);
  return Math.abs(each - truth) <= 0.5 * size * (1 + 1e-9) && equal(each / size, Math.round(each / size));
});

function coarse(given, { value, accept: { digits } }) {
  if (digits) {
    for (let fewer = 1; fewer < digits; fewer++) {
      if (roundsTo(given, value, (each) => unit(each, fewer))) return `${COARSE}${digits} significant digits`;
    }
  } else if (roundsTo(given, value, () => 0.1)) return `${COARSE}two decimals`;
  else if (same(given, map(value, (each) => Math.floor(each * 100) / 100))) {
    return "right as far as it goes, but cut off after two decimals: round instead";
  }
  return "";
}

function sums(given, part) {
  if (part.rows_sum === null) return "";
  if (flat(part.value).every((each) => each >= 0) && flat(given).some((each) => each < 0)) {
    return "a weight is negative, and no exponential is";
  }
  const sizes = rows(given).map(total), width = rows(given)[0].length;
  const at = sizes.findIndex((each) => Math.abs(each - part.rows_sum) > 0.005 * width + 1e-9);
  if (at < 0) return "";
  const name = depth(given) === 2 ? `row ${at + 1} sums` : "the numbers sum";
  return `${name} to ${Number(sizes[at].toPrecision(4))}, not to ${part.rows_sum}`;
}

function place(given, part) {
  if (depth(given) === 0) return given > part.value ? "too large" : "too small";
  const errors = flat(given).map((each, at) => Math.abs(each - flat(part.value)[at]));
  const at = errors.indexOf(Math.max(...errors)), width = depth(given) === 2 ? given[0].length : 1;
  const noun = width > 1 || depth(given) === 2 ? "row" : "number";
  const worst = noun === "number" ? `number ${at + 1} is off the most`
    : `the entry in row ${Math.floor(at / width) + 1}, column ${(at % width) + 1} is off the most`;
  const fine = errors.map((each, index) => each <= slack(flat(part.value)[index], part.accept));
  const right = given.map((_, row) => row + 1).filter((row) => fine.slice((row - 1) * width, row * width).every(Boolean));
  return right.length ? `${noun}${right.length > 1 ? "s" : ""} ${right.join(" and ")} right, ${worst}`
    : `no ${noun} is right; ${worst}`;
}

function diagnosis(given, part) {
  const fits = (value) => close(value, part.value, part.accept);
  const early = coarse(given, part) || known(given, part);
  if (early) return early;
  if (!part.accept.digits && roundsTo(given, part.value, () => 1)) return `${COARSE}two decimals`;
  const shares = flat(part.value).every((each) => each >= 0 && each <= 1);
  if (shares && fits(map(given, (each) => each / 100))) return "these are percentages; give shares of 1";
  const sum = sums(given, part);
  if (sum) return `${sum}; ${part.hint}`;
  if (fits(map(given, (each) => -each))) return `right but for the sign; ${part.hint}`;
  if (depth(given) === 2 && fits(transposed(given))) {
    return `transposed: rows are for each ${part.axes[0]}, columns for each ${part.axes[1]}`;
  }
  return `${place(given, part)}; ${part.hint}`;
}

function numbers(part, given, answer) {
  let value;
  try { value = read(given, part.shape.length); } catch (error) { return { right: false, text: error.message }; }
  if (close(value, part.value, part.accept)) return { right: true, text: "right" };
  if (!alike(value, part.value)) return { right: false, text: wrongShape(value, part) };
  if (follows(value, part, answer)) {
    const text = `this follows correctly from your ${quoted(part.follows.part)}, which is not right: repair that first`;
    return { right: false, text, follows: true };
  }
  return { right: false, text: diagnosis(value, part) };
}

function choice(part, given) {
  const words = part.options.map(({ value }) => quoted(value)).join(", ");
  if (typeof given !== "string") return { right: false, text: `give one of ${words}, got ${python(given)}` };
  const option = part.options.find(({ value }) => value.toLowerCase() === given.trim().toLowerCase());
  if (!option) return { right: false, text: `${quoted(given)} is no option; choose from ${words}` };
  const right = option.value === part.right;
  return { right, text: (right ? "right: " : "") + option.text };
}

function selection(part, given) {
  const name = (item) => flat(item).join("–"), pair = Array.isArray(part.right[0]);
  const fits = (item) => (pair ? Array.isArray(item) && item.length === part.right[0].length : typeof item === "string");
  if (!Array.isArray(given) || !given.every(fits)) return { right: false, text: `give ${part.form}` };
  const items = new Map(part.items.map((item) => [name(item.value), item])), chosen = unique(given.map(name));
  const unknown = chosen.find((each) => !items.has(each));
  if (unknown !== undefined) return { right: false, text: `${quoted(unknown)} is not in the map` };
  const whole = part.mistakes.find(({ value }) => String(value.map(name).sort()) === String([...chosen].sort()));
  const wrong = chosen.map((each) => items.get(each)).filter((item) => !item.right).map((item) => item.text);
  if (whole || wrong.length) return { right: false, text: whole?.text ?? unique(wrong).join("; ") };
  const missing = part.items.filter((item) => item.right && !chosen.includes(name(item.value)));
  if (missing.length) {
    return { right: false, text: `${missing.length} missing: ${unique(missing.map(({ text }) => text)).join("; ")}` };
  }
  return { right: true, text: "right" };
}

const KINDS = { numbers, choice, selection };

export function check(exercise, answer) {
  const judge = (name) => KINDS[exercise.parts[name].kind](exercise.parts[name], answer[name], answer);
  const verdict = (name) => {
    if (answer[name] === null) return { right: false, text: "still open: write your answer in place of None" };
    const { right, text, follows: derived = false } = judge(name), { follows: from } = exercise.parts[name];
    return derived && judge(from.part).right
      ? { right: true, text: `right, from the rounded ${quoted(from.part)}` } : { right, text, follows: derived };
  };
  return Object.keys(exercise.parts).filter((name) => Object.hasOwn(answer, name))
    .map((part) => ({ part, follows: false, ...verdict(part) }));
}
