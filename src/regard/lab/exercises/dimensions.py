"""Exercise 7: the sizes of attention in known models."""

import math

from regard.lab.dimensions import MODELS, LayerShape
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import one_of, whole
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import shown
from regard.nn import MultiHeadAttention

SHAPES = {shape.model: shape for shape in MODELS}
USUAL = one_of("BERT-base", "BERT-large", "GPT-2 small", "Transformer base", "GPT-2 XL")  # heads of 64 numbers
BERT, GPT3, SMALL = (SHAPES[name] for name in (USUAL, "GPT-3 175B", one_of("T5 v1.1 small", "T5-3B", "Gemma 7B")))
TOKENS = whole(10, 5, 30)
DOUBLED = BERT.d_k // 2

TASK = f"""\
Three models, with d_model numbers per token and h heads:

  {BERT.model:<14} d_model {BERT.d_model:>6,}   h {BERT.heads:>2}
  {GPT3.model:<14} d_model {GPT3.d_model:>6,}   h {GPT3.heads:>2}
  {SMALL.model:<14} d_model {SMALL.d_model:>6,}   h {SMALL.heads:>2}

The first two keep the custom d_k = d_v = d_model / h; the third has chosen
d_k = d_v = {SMALL.d_k}. Compute:

  d_k         of {BERT.model} and of GPT-3: two numbers
  divisor     what their scores are divided by: two numbers, two decimals
  parameters  of W_Q, W_K, W_V, W_O in a layer of {BERT.model}, without biases
  w_o         the shape of W_O in {SMALL.model}, [rows, columns], tokens as rows
  weights     how many attention weights a layer of {BERT.model} computes
              for a text of {TOKENS} tokens, without a mask
  changes     what would change if {BERT.model} had {2 * BERT.heads} heads:
              parameters, output-width or divisor"""


def layer(shape: LayerShape) -> MultiHeadAttention:
    """The layer without biases, as shapes without numbers."""
    return LayerShape(shape.model, shape.d_model, shape.heads, shape.kv_heads, shape.d_k, False).layer()


PARAMETERS = layer(BERT).summary(TOKENS).total_parameters
WITH_BIASES = PARAMETERS + 3 * BERT.heads * BERT.d_k + BERT.d_model
W_O = tuple(reversed(layer(SMALL).out_proj.weight.shape))  # torch stores (out, in)
WIDTHS = [float(layer(shape).d_k) for shape in (BERT, GPT3)]
WEIGHTS = BERT.heads * TOKENS**2
CHOICE = Choice(
    f"{2 * BERT.heads} heads of {DOUBLED} numbers",
    (
        "parameters",
        f"{2 * BERT.heads} heads of {DOUBLED} numbers are {BERT.d_model} columns, as {BERT.heads} of {BERT.d_k} are: "
        "the matrices keep their shape",
    ),
    ("output-width", "W_O leads back to d_model, whatever the number of heads"),
    (
        "divisor",
        f"d_k is halved: √d_k goes from {math.sqrt(BERT.d_k):g} to {math.sqrt(DOUBLED):.2f}; the matrices stay",
    ),
    right="divisor",
)
PARTS = {
    "d_k": Quantity(
        (WIDTHS, "d_model / h"),
        ([BERT.d_model, GPT3.d_model], "that is d_model; each head has its share of it"),
        ([math.sqrt(width) for width in WIDTHS], "that is √d_k, the next part"),
        ([BERT.heads, GPT3.heads], "that is the number of heads; d_k is the width of one"),
        ([BERT.d_model * BERT.heads, GPT3.d_model * GPT3.heads], "multiplied by h; the heads share d_model among them"),
        ([WIDTHS[0], WIDTHS[0]], f"{WIDTHS[0]:g} is a habit, not a law: divide {GPT3.d_model:,} by {GPT3.heads}"),
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
        (PARAMETERS // BERT.heads, f"that is one head of {BERT.heads}"),
        (WITH_BIASES, "right with biases; asked is without"),
        (2 * PARAMETERS, "those are operations per token, two for a multiplication and addition"),
    ),
    "w_o": Quantity(
        (W_O, "in: the heads side by side, h · d_v; out: d_model"),
        ([SMALL.d_model, SMALL.d_model], f"h · d_v is {SMALL.heads} · {SMALL.d_k} = {W_O[0]:,} here, not d_model"),
        (W_O[::-1], "transposed: tokens are rows, so rows of W_O take what comes in"),
        ([SMALL.d_k, SMALL.d_model], f"that is the part of one head; all {SMALL.heads} stand one below the other"),
        axes=("side",),
    ),
    "weights": Quantity(
        (WEIGHTS, "one for each head, query and key"),
        (TOKENS**2, f"that is one head; there are {BERT.heads}"),
        (BERT.heads * TOKENS * (TOKENS + 1) // 2, "there is no causal mask: every token sees every token"),
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
    f"w_o: {SMALL.heads} · {SMALL.d_k} = {W_O[0]:,} rows, {W_O[1]:,} columns.",
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
