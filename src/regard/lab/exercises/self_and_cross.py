"""Exercise 21: self against cross attention, in shapes and in numbers."""

import torch

from regard.inspection.explain import explain, project
from regard.inspection.matrix import matrix
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import one_of, whole
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import shown, steps, tensor, weights
from regard.lab.maps import TRANSLATION
from regard.nn import MultiHeadAttention

FRENCH, ENGLISH = one_of(len(TRANSLATION.rows), 9, 5), one_of(len(TRANSLATION.columns), 8, 4)
D_MODEL, D_SOURCE, HEADS = one_of(512, 256), one_of(768, 1024), one_of(8, 4)
SIDE, TEXT = one_of(64, 32, 16), one_of(77, 50)
X, Y = tensor(whole([[1, 0]], 0, 2)), tensor(whole([[1, 0], [0, 1], [1, 1]], 0, 2))
IDENTITY = tensor([[1, 0], [0, 1]])

TASK = f"""\
A decoder writes {FRENCH} French words (rows of {D_MODEL} numbers) and looks at {ENGLISH} English
ones that an encoder gave it (rows of {D_SOURCE} numbers); {HEADS} heads, d_k = d_v = {D_MODEL // HEADS}.
Shapes are [rows, columns], tokens being rows:

  self     the map of one head of self-attention among the French words
  cross    the map of one head of cross-attention
  w_k      the shape of W_K in cross-attention, all heads together
  output   the shape of what cross-attention returns
  image    an image of {SIDE} × {SIDE} places asks a text of {TEXT} tokens: the map

In numbers: the query comes from x = {shown(X[0])}; keys and values from {shown(Y[0])}, {shown(Y[1])}
and {shown(Y[2])}; all projections are [[1, 0], [0, 1]], scores are divided by √2:

  weights  the three weights of x, to two decimals or more
  shuffle  the English words are shuffled and carry no positions: the French
           outputs are shuffled, the-same or different"""


def map_of(queries: int, keys: int) -> list[int]:
    """The shape of one head's map."""
    return list(matrix(torch.zeros(1, 1, queries, 1), torch.zeros(1, 1, keys, 1))[0, 0].shape)


def layer() -> MultiHeadAttention:
    """The cross-attention of the task, as shapes without numbers."""
    with torch.device("meta"):
        return MultiHeadAttention(D_MODEL, HEADS, d_key=D_SOURCE, d_value=D_SOURCE)


W_K = list(reversed(layer().k_proj.weight.shape))  # torch stores (out, in)
OUTPUT = [FRENCH, layer().out_proj.weight.shape[0]]
WEIGHTS = weights(X, Y)[0]
DOTS = shown(Y @ X[0]).strip("[]")
CHOICE = Choice(
    "which axis of the map is shuffled, and what becomes of it?",
    ("shuffled", "the rows of the output belong to French words, which have not moved"),
    ("the-same", "columns of the map and rows of V are shuffled together, and their sum has no order"),
    ("different", "each English word keeps its key and value: the same weights meet the same values"),
    right="the-same",
)
PARTS = {
    "self": Quantity(
        (map_of(FRENCH, FRENCH), "queries and keys are both French"),
        ([FRENCH, ENGLISH], "that is cross-attention; in self-attention the keys are French too"),
        ([ENGLISH, ENGLISH], "those are the English words among themselves, in the encoder"),
        ([FRENCH, D_MODEL], "that is the shape of the words themselves, or of the output"),
        axes=("side",),
    ),
    "cross": Quantity(
        (map_of(FRENCH, ENGLISH), "a row for each query, a column for each key"),
        ([ENGLISH, FRENCH], "transposed: the French words ask, so they are the rows"),
        ([FRENCH, FRENCH], "that is self-attention: the keys are English"),
        ([ENGLISH, ENGLISH], "the queries are French"),
        ([FRENCH + ENGLISH] * 2, "the two are not put together: French words look at English ones only"),
        axes=("side",),
    ),
    "w_k": Quantity(
        (W_K, "in: a row of the encoder; out: h · d_k"),
        ([D_MODEL, D_MODEL], f"keys are made from the encoder's rows, which are {D_SOURCE} wide"),
        (W_K[::-1], "transposed: tokens are rows, so the rows of W_K take what comes in"),
        ([D_SOURCE, D_MODEL // HEADS], f"that is one head; asked are all {HEADS}"),
        ([D_SOURCE, D_SOURCE], f"keys meet queries, which are h · d_k = {D_MODEL} wide"),
        axes=("side",),
    ),
    "output": Quantity(
        (OUTPUT, "a row for each query"),
        ([ENGLISH, D_MODEL], "there is one output for each query, and the queries are French"),
        ([FRENCH, D_SOURCE], f"W_O leads to d_model, {D_MODEL}"),
        ([ENGLISH, D_SOURCE], "that is what the encoder gave; the output has a row for each query"),
        ([FRENCH, D_MODEL // HEADS], "that is one head, before the heads are put together"),
        axes=("side",),
    ),
    "image": Quantity(
        (map_of(SIDE**2, TEXT), "who asks, and who is asked?"),
        ([TEXT, SIDE**2], "the image asks and the text is looked at: the places are the rows"),
        ([SIDE, TEXT], f"every place of the image asks, {SIDE} · {SIDE} of them"),
        ([SIDE**2, SIDE**2], "that is the image among itself"),
        axes=("side",),
    ),
    "weights": Quantity(
        (WEIGHTS, "scores of x with the three keys, ÷ √2, softmax"),
        (weights(Y, Y)[2], f"that is the query {shown(Y[2])}; x asks, and x is {shown(X[0])}"),
        (weights(X, Y * 2**0.5)[0], "the division by √2 is missing"),
        (weights(Y, X)[:, 0], "softmax over the wrong axis: the three weights of one query sum to 1"),
        (torch.full((3,), 1 / 3), f"the scores differ: {DOTS} before the division"),
        ((Y @ X[0]) / (Y @ X[0]).sum(), "divided by the sum without e^x first: a score of 0 is not a weight of 0"),
        axes=("key",),
        rows_sum=1.0,
    ),
    "shuffle": CHOICE,
}
EXPLAINED = explain(
    project(X, IDENTITY, IDENTITY, IDENTITY, memory=Y), query_tokens=["x"], key_tokens=["y1", "y2", "y3"]
)
SOLUTION = (
    f"self {map_of(FRENCH, FRENCH)}, cross {map_of(FRENCH, ENGLISH)}: queries are rows, keys are columns.",
    f"w_k {W_K}: from {D_SOURCE} numbers to {HEADS} · {D_MODEL // HEADS} = {D_MODEL}. output {OUTPUT}: one "
    f"row for each query. image {map_of(SIDE**2, TEXT)}, for {SIDE} · {SIDE} = {SIDE**2:,} places ask.",
    steps(EXPLAINED, "Dot products", "Weights"),
    f"shuffle: {CHOICE}. In self-attention the outputs would be shuffled, because the "
    "queries would be too (exercise 11).",
)
EXERCISE = Exercise(
    21,
    "Self against cross attention",
    Chapter("experiment results", "Self-attention vs cross-attention", ("self-cross", "translation")),
    TASK,
    PARTS,
    '{"self": [3, 6], "cross": [6, 3], "w_k": [5, 5], "weights": [0.1, 0.1, 0.8], "shuffle": "shuffled"}',
    SOLUTION,
)
