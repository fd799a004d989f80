// Chapter 3: sizes. Shapes flow through one attention layer; parameters and operations count along.

import { bars } from "../bars.js";
import { presets, reading, row, slider } from "../controls.js";
import { brief } from "../draw.js";
import { whole } from "../fields.js";
import { flow } from "../flow.js";
import { make } from "../shared/dom.js";

const MODELS = [
  { text: "BERT-base", values: { d: 768, h: 12, kv: 12, n: 512 }, title: "d_model 768, 12 heads of width 64, 512 tokens" },
  { text: "GPT-2", values: { d: 768, h: 12, kv: 12, n: 1024 }, title: "d_model 768, 12 heads of width 64, 1,024 tokens" },
  { text: "Llama 3 8B", values: { d: 4096, h: 32, kv: 8, n: 8192 }, title: "d_model 4,096, 32 query heads of width 128 over 8 key/value heads, 8,192 tokens" },
  { text: "the mini-course", values: { d: 2, h: 1, kv: 1, n: 3 }, title: "three words of width 2" },
];

// Everything that follows from the sizes; a multiplication and an addition count as two operations.
export function counts({ d, h, kv, n }) {
  const dk = Math.max(Math.floor(d / h), 1);
  const projections = 2 * n * d * dk * (h + 2 * kv), out = 2 * n * h * dk * d, scores = 2 * h * n * n * dk, mixing = 2 * h * n * n * dk;
  return { dk, parameters: d * dk * (h + 2 * kv) + h * dk * d, projections, out, scores, mixing, matrix: h * n * n };
}

const sizes = (state) => {
  const h = state.get("h"), kv = Math.min(state.get("kv"), h);
  return { d: state.get("d"), h, kv: h % kv ? h : kv, n: state.get("n") };
};

function build(stage, { state }) {
  presets(row(stage), state, MODELS, "Models");
  const sliders = row(stage);
  slider(sliders, state, "d", { label: "d_model, width of a token", low: 2, high: 8192, step: 2, log: true, format: (x) => x.toLocaleString("en") });
  slider(sliders, state, "h", { label: "h, heads", low: 1, high: 64, step: 1, log: true });
  slider(sliders, state, "kv", { label: "heads of keys and values", low: 1, high: 64, step: 1, log: true, hint: "fewer than h: grouped-query attention; it must divide h" });
  slider(sliders, state, "n", { label: "n, tokens", low: 2, high: 16384, step: 1, log: true, format: (x) => x.toLocaleString("en") });
  const view = flow(stage, { label: "Shapes through an attention layer" });
  const readings = make("div", stage, { name: "readings" });
  const width = reading(readings, "d_k = d_model / h"), parameters = reading(readings, "parameters of the layer"), operations = reading(readings, "operations, all tokens"), matrix = reading(readings, "weights, h × n × n"), cache = reading(readings, "keys and values per token", "numbers that a KV cache stores for each token");
  make("p", stage, { text: "Where the operations go", name: "part-title spaced" });
  const shares = bars(stage, { label: "Operations by part of the layer", names: 150, numbers: 74, most: 900, high: (items) => Math.max(...items.map((item) => item.value)), format: brief });
  const note = make("p", stage, { name: "sentence" });

  return () => {
    const given = sizes(state), { d, h, kv, n } = given, all = counts(given), { dk } = all;
    view.update([
      [{ name: "X", shape: [n, d], kind: "other" }],
      [{ name: "Q = X W_Q", shape: [n, dk], count: h, kind: "query" }, { name: "K = X W_K", shape: [n, dk], count: kv, kind: "key" }, { name: "V = X W_V", shape: [n, dk], count: kv, kind: "value" }],
      [{ name: "weights", shape: [n, n], count: h, kind: "weight", from: ["Q = X W_Q", "K = X W_K"] }],
      [{ name: "weights · V", shape: [n, dk], count: h, kind: "output", from: ["weights", "V = X W_V"] }],
      [{ name: "side by side", shape: [n, h * dk], kind: "output" }],
      [{ name: "· W_O", shape: [n, d], kind: "other" }],
    ]);
    width(String(dk));
    parameters(brief(all.parameters));
    operations(brief(all.projections + all.out + all.scores + all.mixing));
    matrix(brief(all.matrix));
    cache(brief(2 * kv * dk));
    shares.update([
      { name: "Q, K, V", value: all.projections, kind: "key" }, { name: "scores Q Kᵀ", value: all.scores, kind: "weight" },
      { name: "weights · V", value: all.mixing, kind: "weight" }, { name: "W_O", value: all.out, kind: "output" },
    ]);
    const quadratic = (all.scores + all.mixing) / (all.projections + all.out + all.scores + all.mixing), rest = d - h * dk;
    note.textContent = `${Math.round(100 * quadratic)} % of the operations grow with n²${rest ? `; ${d} is not a multiple of ${h}, so ${rest} of its numbers are left out of the heads` : ""}${kv < h ? `; ${h / kv} query heads share each head of keys and values` : ""}.`;
  };
}

export const chapter = {
  number: 3,
  name: "sizes",
  title: "Sizes",
  text: [
    "A layer cuts the width d_model of a token into h heads of width d_k = d_model / h, lets each attend on its own, and puts the results side by side again.",
    "Move the sizes and watch which shapes, which parameters and which operations change.",
  ],
  predict: {
    question: "The number of heads is doubled while d_model stays. What happens to the number of parameters of the layer?",
    options: ["it halves", "it stays", "it doubles"],
    answer: 1,
    because: "Twice the heads have half the width each: W_Q is d_model × (h · d_k) = d_model × d_model, however it is cut. Only with fewer heads of keys and values does it shrink.",
  },
  notice: [
    "Parameters depend on d_model alone, not on h and not on n: the same layer reads any length.",
    "Projections cost n · d_model², scores n² · d_model: at n = 2 d_model both are equal, and beyond that the n × n part dominates.",
    "Every head has an n × n matrix of its own. It is the largest thing in the picture for long texts, and never has to be stored.",
    "Llama's heads share keys and values in groups: the cache is h / kv times smaller, and the scores cost the same.",
  ],
  exercise: { number: 7 },
  experiments: [{ command: "regard lab dimensions", about: "measures how a model's width is cut into heads, and what that changes." }],
  fields: { d: whole(768, 2, 8192), h: whole(12, 1, 64), kv: whole(12, 1, 64), n: whole(512, 2, 16384) },
  wide: true,
  build,
};
