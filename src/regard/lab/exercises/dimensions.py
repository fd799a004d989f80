"""Exercise 7: the sizes of attention in known models."""

import math

from regard.lab.dimensions import MODELS, LayerShape
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import shown
from regard.nn import MultiHeadAttention

SHAPES = {shape.model: shape for shape in MODELS}
BERT, GPT3, SMALL = (SHAPES[name] for name in ("BERT-base", "GPT-3 175B", "T5 v1.1 small"))
TOKENS = 10

TASK = f"""\
Three models, with d_model numbers per token and h heads:

  {BERT.model:<14} d_model {BERT.d_model:>6,}   h {BERT.heads:>2}
  {GPT3.model:<14} d_model {GPT3.d_model:>6,}   h {GPT3.heads:>2}
  {SMALL.model:<14} d_model {SMALL.d_model:>6,}   h {SMALL.heads:>2}

The first two keep the custom d_k = d_v = d_model / h; the third has chosen
d_k = d_v = {SMALL.d_k}. Compute:

  d_k         of BERT-base and of GPT-3: two numbers
  divisor     what their scores are divided by: two numbers, two decimals
  parameters  of W_Q, W_K, W_V and W_O in one layer of BERT-base, without biases
  w_o         the shape of W_O in T5 v1.1 small, [rows, columns], tokens as rows
  weights     how many attention weights a layer of BERT-base computes for a
              text of {TOKENS} tokens
  changes     what would change if BERT-base had 24 heads: parameters,
              output-width or divisor"""


def layer(shape: LayerShape) -> MultiHeadAttention:
    """The layer without biases, as shapes without numbers."""
    return LayerShape(shape.model, shape.d_model, shape.heads, shape.kv_heads, shape.d_k, False).layer()


PARAMETERS = layer(BERT).summary(TOKENS).total_parameters
W_O = tuple(reversed(layer(SMALL).out_proj.weight.shape))  # torch stores (out, in)
WIDTHS = [float(layer(shape).d_k) for shape in (BERT, GPT3)]
WEIGHTS = BERT.heads * TOKENS**2
CHOICE = Choice(
    "24 heads of 32 numbers",
    ("parameters", "24 heads of 32 numbers are 768 columns, as 12 of 64 are: the matrices keep their shape"),
    ("output-width", "W_O leads back to d_model, whatever the number of heads"),
    ("divisor", "d_k is halved, so √d_k goes from 8 to 5.66; the matrices stay as they are"),
    right="divisor",
)
PARTS = {
    "d_k": Quantity(
        (WIDTHS, "d_model / h"),
        ([BERT.d_model, GPT3.d_model], "that is d_model; each head has its share of it"),
        ([math.sqrt(width) for width in WIDTHS], "that is √d_k, the next part"),
        ([BERT.heads, GPT3.heads], "that is the number of heads; d_k is the width of one"),
        ([BERT.d_model * BERT.heads, GPT3.d_model * GPT3.heads], "multiplied by h; the heads share d_model among them"),
        ([WIDTHS[0], WIDTHS[0]], "64 is a habit, not a law: divide 12,288 by 96"),
        axes=("model",),
    ),
    "divisor": Quantity(
        ([math.sqrt(width) for width in WIDTHS], "√d_k"),
        (WIDTHS, "that is d_k; scores are divided by its root, which keeps their variance at 1"),
        (
            [math.sqrt(BERT.d_model), math.sqrt(GPT3.d_model)],
            "that is √d_model: a score is a dot product within one head, over d_k numbers",
        ),
        ([math.sqrt(BERT.heads), math.sqrt(GPT3.heads)], "that is √h; the scores know nothing of the other heads"),
        axes=("model",),
    ),
    "parameters": Quantity(
        (PARAMETERS, "four matrices of d_model × (h · d_k)"),
        (PARAMETERS * 3 // 4, "W_O is missing: there are four matrices"),
        (PARAMETERS // 4, "that is one of the four matrices"),
        (PARAMETERS * BERT.heads, "the heads share the d_model columns of each matrix; they do not have d_model each"),
        (PARAMETERS // BERT.heads, "that is one head of twelve"),
        (BERT.layer().summary(TOKENS).total_parameters, "right with biases; asked is without"),
        (2 * PARAMETERS, "those are operations per token, two for a multiplication and addition"),
    ),
    "w_o": Quantity(
        (W_O, "in: the heads side by side, h · d_v; out: d_model"),
        ([SMALL.d_model, SMALL.d_model], "h · d_v is 6 · 64 = 384 here, not d_model"),
        (W_O[::-1], "transposed: tokens are rows, so rows of W_O take what comes in"),
        ([SMALL.d_k, SMALL.d_model], "that is the part of one head; all six stand one below the other"),
        axes=("side",),
    ),
    "weights": Quantity(
        (WEIGHTS, "one for each head, query and key"),
        (TOKENS**2, "that is one head; there are twelve"),
        (BERT.heads * TOKENS * (TOKENS + 1) // 2, "BERT has no causal mask: every token sees every token"),
        (BERT.d_model * TOKENS**2, "there is one weight per head, not per dimension"),
        (BERT.heads * TOKENS, "each of the tokens looks at each of the tokens: n · n weights per head"),
    ),
    "changes": CHOICE,
}
SOLUTION = (
    f"{BERT.model}, one layer without biases, {TOKENS} tokens:\n\n{layer(BERT).summary(TOKENS)}",
    f"d_k: {BERT.d_model} / {BERT.heads} = {shown(WIDTHS[0])} and {GPT3.d_model:,} / {GPT3.heads} = "
    f"{shown(WIDTHS[1])}.",
    f"divisor: √{shown(WIDTHS[0])} = {shown(math.sqrt(WIDTHS[0]))} and √{shown(WIDTHS[1])} = "
    f"{shown(math.sqrt(WIDTHS[1]))}.",
    f"parameters: 4 · {BERT.d_model} · {BERT.heads * BERT.d_k} = {PARAMETERS:,}.",
    f"w_o: {SMALL.heads} · {SMALL.d_k} = {W_O[0]} rows, {W_O[1]} columns.",
    f"weights: {BERT.heads} · {TOKENS} · {TOKENS} = {WEIGHTS:,}.",
    f"changes: {CHOICE}.",
)
EXERCISE = Exercise(
    7,
    "d_model, d_k, d_v and h of known models",
    Chapter("important concepts", "2. What is d_k, d_v, d_model?", ("dimensions",)),
    TASK,
    PARTS,
    '{"d_k": [768, 12288], "divisor": [64, 128], "parameters": 1769472, "w_o": [512, 512], "changes": "parameters"}',
    SOLUTION,
)
