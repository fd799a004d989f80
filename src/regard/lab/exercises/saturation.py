"""Exercise 5: softmax of small and large scores, and how it answers a change of them."""

import torch
from torch import Tensor

from regard.lab.exercises.derived import derived
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import one_of
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import explain_row, shown, softmax, steps, tensor

SMALL = tensor(one_of([1, 2, 3], [0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 4], [1, 3, 4], [2, 3, 4]))
LARGE = 10 * SMALL

TASK = f"""\
A query scores three keys with {shown(SMALL)}; another, with larger vectors, scores
them with {shown(LARGE)}. Compute, to two decimals unless it says otherwise:

  weights   softmax of {shown(SMALL)}, three numbers
  shifted   softmax of {shown(SMALL + 10)}, three numbers
  jacobian  3 × 3: row i, column j is the derivative of weight i by score j,
            at {shown(SMALL)}; w_i (1 − w_i) on the diagonal, −w_i w_j elsewhere
  second    the weight of the second key for {shown(LARGE)},
            to two significant digits (4.2e-7 is a way to write 0.00000042)
  slope     the derivative of the third weight by the third score there,
            to two significant digits
  gradient  what training gets from {shown(LARGE)}: none, tiny or overflow"""


def jacobian(weights: Tensor) -> Tensor:
    """∂w_i / ∂s_j."""
    return weights.diag() - weights.outer(weights)


W, L = softmax(SMALL), softmax(LARGE)
J, SLOPE = jacobian(W), jacobian(L)[2, 2]
POWERS = "{}, {} and {}".format(*(f"e^{shown(score)}" for score in SMALL))
POWERS_OF_LARGE = " + ".join(f"e^{shown(score)}" for score in LARGE)
WRONG = (
    (SMALL / SMALL.sum(), "divided by the sum without e^x first: that is not softmax"),
    (SMALL.exp(), "e^x is right, now divide by the sum of the three"),
    (W.flip(0), "the other way round, as if e^(−x) were taken: the largest score gets the largest weight"),
    (tensor([0, 0, 1]), "that is arg-max, hard attention: softmax gives every key a share"),
)
CHOICE = Choice(
    "look at your 'slope'",
    ("none", f"it is small but not zero: {SLOPE:.1e}, so training is slowed by a large factor, not forbidden"),
    ("tiny", f"{SLOPE:.1e} against {J[2, 2]:.2f} at {shown(SMALL)}: {float(J[2, 2] / SLOPE):,.0f} times less"),
    ("overflow", "the largest score is subtracted before e^x, so nothing overflows: the results are finite"),
    right="tiny",
)
PARTS = {
    "weights": Quantity((W, f"{POWERS}, divided by their sum"), *WRONG, axes=("key",), rows_sum=1.0),
    "shifted": Quantity(
        (W, "what does e^10 do above and below the line?"),
        (L, f"that is softmax of {shown(LARGE)}: only differences count, and here they are those of {shown(SMALL)}"),
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
        (L[1], f"e^{shown(LARGE[1])} / ({POWERS_OF_LARGE}), which is nearly e^({shown(LARGE[1] - LARGE[2])})"),
        (0, "that is what two decimals show; no weight of softmax is zero"),
        (W[1], f"that is the weight for {shown(SMALL)}"),
        (L[0], f"that is the first key's, e^({shown(LARGE[0] - LARGE[2])})"),
        (LARGE[1] / LARGE.sum(), "divided by the sum without e^x first: that is not softmax"),
        (L[2], "that is the third key's"),
        digits=2,
    ),
    "slope": Quantity(
        (SLOPE, "w₃ (1 − w₃): 1 − w₃ is what the other two have"),
        (0, "1 − w₃ is small, not zero: it is the weight of the other two keys"),
        (J[2, 2], f"that is the slope at {shown(SMALL)}"),
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
    f"{shown(SMALL)}, {float(J[2, 2] / SLOPE):,.0f} times less.",
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
