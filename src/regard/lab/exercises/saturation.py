"""Exercise 5: softmax of small and large scores, and how it answers a change of them."""

import torch
from torch import Tensor

from regard.lab.exercises.derived import derived
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import explain_row, shown, softmax, steps, tensor

SMALL, LARGE = tensor([1, 2, 3]), tensor([10, 20, 30])

TASK = """\
A query scores three keys with [1, 2, 3]; another, with larger vectors, scores
them with [10, 20, 30]. Compute, to two decimals unless it says otherwise:

  weights   softmax of [1, 2, 3], three numbers
  shifted   softmax of [11, 12, 13], three numbers
  jacobian  3 × 3: row i, column j is the derivative of weight i by score j,
            at [1, 2, 3]; w_i (1 − w_i) on the diagonal, −w_i w_j elsewhere
  second    the weight of the second key for [10, 20, 30],
            to two significant digits (4.2e-7 is a way to write 0.00000042)
  slope     the derivative of the third weight by the third score there,
            to two significant digits
  gradient  what training gets from [10, 20, 30]: none, tiny or overflow"""


def jacobian(weights: Tensor) -> Tensor:
    """∂w_i / ∂s_j."""
    return weights.diag() - weights.outer(weights)


W, L = softmax(SMALL), softmax(LARGE)
J, SLOPE = jacobian(W), jacobian(L)[2, 2]
WRONG = (
    (SMALL / SMALL.sum(), "divided by the sum without e^x first: that is not softmax"),
    (SMALL.exp(), "e^x is right, now divide by the sum of the three"),
    (W.flip(0), "the other way round, as if e^(−x) were taken: the largest score gets the largest weight"),
    (tensor([0, 0, 1]), "that is arg-max, hard attention: softmax gives every key a share"),
)
CHOICE = Choice(
    "look at your 'slope'",
    ("none", "it is small but not zero: 4.5e-5, so training is slowed by a factor of thousands, not forbidden"),
    ("tiny", "4.5e-5 against 0.22 at [1, 2, 3]: thousands of times less"),
    ("overflow", "the largest score is subtracted before e^x, so nothing overflows: the results are finite"),
    right="tiny",
)
PARTS = {
    "weights": Quantity((W, "e^1, e^2 and e^3, divided by their sum"), *WRONG, axes=("key",), rows_sum=1.0),
    "shifted": Quantity(
        (W, "what does e^10 do above and below the line?"),
        (L, "that is softmax of [10, 20, 30]: only differences count, and here they are 1, not 10"),
        ((SMALL + 10) / (SMALL + 10).sum(), "divided by the sum without e^x first: that is not softmax"),
        (torch.full_like(W, 1 / 3), "larger scores with the same differences: not flatter, but the very same"),
        (W.flip(0), "the other way round: the largest score gets the largest weight"),
        axes=("key",),
        rows_sum=1.0,
    ),
    "jacobian": Quantity(
        (J, "w_i (1 − w_i) where i = j, −w_i w_j elsewhere"),
        (W.diag(), "that is w_i on the diagonal: more for one key is less for the others, so nothing else is 0 either"),
        (J.diag().diag(), "off the diagonal stands −w_i w_j, not 0: what one key gains, the others lose"),
        (-W.outer(W), "the diagonal has a further w_i: w_i (1 − w_i)"),
        (J.abs(), "the signs are missing: a higher score for one key lowers the others' weights"),
        (W.diag() + W.outer(W), "it is w_i − w_i², not w_i + w_i², and −w_i w_j elsewhere"),
        (J.diag().expand(3, 3), "w_i (1 − w_i) stands on the diagonal only"),
        axes=("weight", "score"),
        follows=derived("weights", "jacobian"),
        rows_sum=0.0,
    ),
    "second": Quantity(
        (L[1], "e^20 / (e^10 + e^20 + e^30), which is nearly e^(−10)"),
        (0, "that is what two decimals show; no weight of softmax is zero"),
        (W[1], "that is the weight for [1, 2, 3]"),
        (L[0], "that is the first key's, e^(−20)"),
        (20 / 60, "divided by the sum without e^x first: that is not softmax"),
        (L[2], "that is the third key's"),
        digits=2,
    ),
    "slope": Quantity(
        (SLOPE, "w₃ (1 − w₃): 1 − w₃ is what the other two have"),
        (0, "1 − w₃ is small, not zero: it is the weight of the other two keys"),
        (J[2, 2], "that is the slope at [1, 2, 3]"),
        (L[2], "that is the weight itself; its derivative is w₃ (1 − w₃)"),
        (0.25, "that is the steepest softmax can be, where the weight is a half"),
        digits=2,
    ),
    "gradient": CHOICE,
}
ROWS = "\n".join(f"  weight {index}   {shown(row)}" for index, row in enumerate(J, 1))
SOLUTION = (
    steps(explain_row(SMALL, SMALL, query_tokens=["q"]), "Exponentials", "Weights"),
    f"shifted: e^10 stands above and below the line and cancels: {shown(softmax(SMALL + 10))}.",
    f"jacobian:\n{ROWS}\nEach row sums to 0: what one weight gains the others lose.",
    f"second: {float(L[1]):.2e}, and slope: {float(SLOPE):.2e} against {shown(J[2, 2])} at "
    f"[1, 2, 3], {float(J[2, 2] / SLOPE):,.0f} times less.",
    f"gradient: {CHOICE}.",
)
EXERCISE = Exercise(
    5,
    "Softmax of large scores, and its derivative",
    Chapter("score functions", "Why scaling matters", ("saturation", "scaling")),
    TASK,
    PARTS,
    '{"weights": [0.17, 0.33, 0.5], "second": 0.33, "slope": 0.25, "gradient": "none"}',
    SOLUTION,
)
