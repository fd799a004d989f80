"""Exercise 8: one projection for queries and keys makes scores symmetric, not weights."""

import math

import torch
from torch import Tensor

from regard.inspection.explain import explain, project
from regard.lab.exercises.derived import derived
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import whole
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import shown, steps, tensor, weights
from regard.lab.maps import attend_statistics

X = tensor(whole([[1, 0], [1, 1]], 0, 2))
W, IDENTITY = tensor(whole([[1, 1], [0, 1]], -1, 1)), tensor([[1, 0], [0, 1]])
TOKENS = ("A", "B")

TASK = f"""\
Two tokens, as rows, and a projection:

  A = {shown(X[0])}    B = {shown(X[1])}    W = {shown(W)}    Q = X · W_Q, K = X · W_K

First W_Q = W_K = W. Compute, to two decimals or more:

  scores     Q Kᵀ / √2, 2 × 2: rows are queries A and B
  weights    softmax of each row, 2 × 2
  lse        for each row, ln of the sum of e^score: two numbers
  gap        ln of the weight A → B, minus ln of the weight B → A

Then separate matrices, W_Q = [[1, 0], [0, 1]] and W_K = W:

  separate   Q Kᵀ / √2, 2 × 2
  symmetric  what W_Q = W_K makes symmetric: scores, weights, both, neither"""


def scaled(query: Tensor, key: Tensor) -> Tensor:
    """Q Kᵀ / √d_k."""
    return query @ key.mT / math.sqrt(query.shape[1])


P = X @ W
SCORES, SEPARATE, WEIGHTS = scaled(P, P), scaled(X, P), weights(P, P)
LSE = attend_statistics(P[None, None], P[None, None], P[None, None], "lse")[1]["lse"][0, 0]
GAP = float((WEIGHTS[0, 1] / WEIGHTS[1, 0]).log())
CHOICE = Choice(
    "compare A → B with B → A in your scores and in your weights",
    ("scores", "q_A · k_B = q_B · k_A, but each row of weights is divided by a sum of its own"),
    ("weights", f"A → B is {WEIGHTS[0, 1]:.2f} and B → A {WEIGHTS[1, 0]:.2f}: each row is divided by a sum of its own"),
    (
        "both",
        f"the scores are; the weights are {WEIGHTS[0, 1]:.2f} and {WEIGHTS[1, 0]:.2f}, for each row has its own sum",
    ),
    ("neither", "q_A · k_B and q_B · k_A are the same product when queries and keys are: the scores are symmetric"),
    right="scores",
)
PAIR = ("query", "key")
PARTS = {
    "scores": Quantity(
        (SCORES, "project both tokens with W, then multiply and divide by √2"),
        (P @ P.mT, "the division by √2 is missing"),
        (P @ P.mT / 2, "divided by d_k = 2; it is √d_k"),
        (scaled(X, X), "W is missing: these are the tokens themselves"),
        (scaled(X @ W.mT, X @ W.mT), "W was transposed: tokens are rows, so Q = X · W"),
        (SEPARATE, "the queries are not projected: W_Q = W here"),
        (SEPARATE.mT, "the keys are not projected: W_K = W here"),
        axes=PAIR,
    ),
    "weights": Quantity(
        (WEIGHTS, "e^score of each entry, divided by the sum of its row"),
        (WEIGHTS.mT, "softmax over the wrong axis: the rows must sum to 1, and a row is one query"),
        (weights(P, P * math.sqrt(2)), "the division by √2 is missing"),
        (weights(X, P), "the queries are not projected: W_Q = W here"),
        (
            (WEIGHTS + WEIGHTS.mT) / 2,
            "made symmetric: the scores are, but every row has a sum of its own, and so the weights are not",
        ),
        (SCORES.exp(), "e^x is right, now divide each row by its sum"),
        (SCORES / SCORES.sum(1, keepdim=True), "divided by the row sums without e^x first: that is not softmax"),
        axes=PAIR,
        follows=derived("scores", "softmax"),
        rows_sum=1.0,
    ),
    "lse": Quantity(
        (LSE, "ln(e^score + e^score) of each row"),
        (SCORES.exp().sum(1), "that is the sum; take its natural logarithm"),
        (SCORES.sum(1), "that is the sum of the scores: ln of a sum is not the sum of the lns"),
        (SCORES.max(1).values, "that is the largest score; the lse lies a little above it"),
        ((P @ P.mT).logsumexp(1), "the division by √2 is missing"),
        (SCORES.exp().sum(1).log10(), "that is the logarithm to base 10; wanted is the natural one"),
        (torch.ones(2), "the weights sum to 1; the lse is of the scores"),
        axes=("query",),
        follows=derived("scores", "lse"),
    ),
    "gap": Quantity(
        (GAP, "ln(w_AB) − ln(w_BA); compare it with the two lse"),
        (WEIGHTS[0, 1] - WEIGHTS[1, 0], "that is the difference of the weights; take their logarithms first"),
        (WEIGHTS[0, 1] / WEIGHTS[1, 0], "that is their quotient; asked is its logarithm"),
        (0, "the scores are symmetric, the weights are not: each row is divided by its own sum"),
        follows=derived("lse", ("difference", 1, 0)),
    ),
    "separate": Quantity(
        (SEPARATE, "Q is X itself now, K = X · W"),
        (SEPARATE.mT, "transposed, or the queries were projected, or W was: rows are queries, and K = X · W"),
        (scaled(X, X), "W is missing: the keys are projected"),
        (SCORES, "these are the scores of W_Q = W_K = W"),
        (X @ P.mT, "the division by √2 is missing"),
        axes=PAIR,
    ),
    "symmetric": CHOICE,
}
EXPLAINED = explain(project(X, W, W, IDENTITY), query_tokens=TOKENS)
SOLUTION = (
    steps(EXPLAINED, "Queries", "Weights"),
    f"gap: ln({shown(WEIGHTS[0, 1])} / {shown(WEIGHTS[1, 0])}) = {shown(GAP)}, and lse_B − lse_A = "
    f"{shown(LSE[1])} − {shown(LSE[0])} = {shown(LSE[1] - LSE[0])}. That is no accident: ln w_ij is score "
    "− lse of the row, and the scores cancel.",
    f"separate: {shown(SEPARATE)}: A scores B with {shown(SEPARATE[0, 1])}, B scores A with {shown(SEPARATE[1, 0])}.",
    f"symmetric: {CHOICE}. One projection can still lead along a line; round a circle it "
    "cannot, because ln(w_ij / w_ji) = lse_j − lse_i adds up to 0 on the way back.",
)
EXERCISE = Exercise(
    8,
    "One projection for queries and keys",
    Chapter("important concepts", "3. Why separate Q, K, V matrices?", ("symmetry", "rows")),
    TASK,
    PARTS,
    '{"weights": [[0.33, 0.67], [0.67, 0.33]], "gap": 0, "symmetric": "both"}',
    SOLUTION,
)
