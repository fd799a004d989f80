"""Exercise 10: attention dropout on one row of weights."""

import torch
from torch import Tensor

from regard.lab.exercises.derived import derived
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import distinct, one_of, shares
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import explain_row, shown, softmax, steps, tensor
from regard.spec.dropout import Dropout

WEIGHTS, VALUES = tensor(shares([0.5, 0.3, 0.2])), tensor(distinct([4, 10, 8], 1, 12))
P, GONE = one_of(0.2, 0.1, 0.25, 0.4), one_of(1, 0, 2)  # the probability, and the key that is dropped
ORDINAL = ("first", "second", "third")[GONE]
FIRST, SECOND, THIRD = map(shown, VALUES)
FACTOR = f"{1 / (1 - P):.4g}"

TASK = f"""\
A query has the weights {shown(WEIGHTS)} for keys whose values are the numbers
{FIRST}, {SECOND} and {THIRD}. Dropout with p = {P} acts on the weights, and this time it drops
the {ORDINAL} one. Compute, to two decimals or more:

  dropped    the three weights that multiply the values now
  sum        what they sum to
  output     the output of the query, a number
  expected   the mean output over all that may be dropped
  nothing    the probability that all three are dropped, to two significant
             digits
  inference  what the trained model does with its weights: keep, scale (times
             {1 - P:g}) or drop"""


def dropped(seed: int) -> Tensor:
    """The three weights after dropout."""
    return softmax(WEIGHTS.log(), dropout=Dropout(P, seed))


MASK = tensor([float(key != GONE) for key in range(3)])
SEED = next(seed for seed in range(1000) if torch.equal(dropped(seed) > 0, MASK > 0))  # drops just that key
DROPPED = dropped(SEED)
OUTPUT, EXPECTED = DROPPED @ VALUES, WEIGHTS @ VALUES
KEPT = WEIGHTS * MASK
WRONG = (
    (KEPT, f"the others grow by 1/(1 − p) = {FACTOR}: otherwise the mean output would shrink by {P:.0%}"),
    (
        KEPT / KEPT.sum(),
        "made to sum to 1 again: that is a mask, which hides a key before softmax. Dropout multiplies by a fixed "
        f"{FACTOR}, whatever was dropped",
    ),
    (KEPT / P, "divided by p; it is 1 − p, the share that stays"),
    (KEPT * (1 - P), "multiplied by 1 − p; divide, so that the mean is kept"),
    (WEIGHTS / (1 - P), f"nothing was dropped: the {ORDINAL} weight becomes 0"),
    (WEIGHTS, "these are the weights before dropout"),
)
CHOICE = Choice(
    f"what did the factor {FACTOR} do in training?",
    ("keep", "the factor 1/(1 − p) in training has already seen to it that the means agree"),
    ("scale", "that belongs to a dropout without the factor 1/(1 − p); with it, scaling again would be too much"),
    ("drop", "dropout is for training: at inference it would only add noise"),
    right="keep",
)
PARTS = {
    "dropped": Quantity(
        (DROPPED, f"0 for the {ORDINAL}, the others divided by 1 − p = {1 - P:g}"), *WRONG, axes=("key",)
    ),
    "sum": Quantity(
        (DROPPED.sum(), "add the three up"),
        (1, "not any more: a row sums to 1 before dropout, and only on average after it"),
        (KEPT.sum(), f"the others grow by 1/(1 − p) = {FACTOR}"),
        (1 - P, f"{P:.0%} of the weights are dropped on average, not {P:.0%} of this row's sum"),
        (1 / (1 - P), f"that is the factor; the {ORDINAL} weight is gone"),
        follows=derived("dropped", "sum"),
    ),
    "output": Quantity(
        (OUTPUT, "each value times its weight after dropout"),
        *((weights @ VALUES, f"the weights behind it are wrong: {text}") for weights, text in WRONG[:4]),
        (EXPECTED, "that is the output without dropout"),
        follows=derived("dropped", ("matmul", VALUES)),
    ),
    "expected": Quantity(
        (EXPECTED, "each weight is 0 with probability p, and w / (1 − p) otherwise: what is its mean?"),
        (EXPECTED * (1 - P), "the factor 1/(1 − p) makes up for what is dropped: the mean of each weight is itself"),
        (EXPECTED / (1 - P), "the factor 1/(1 − p) stands against being dropped with probability p: they cancel"),
        (OUTPUT, "that is this one case; asked is the mean over all of them"),
        (VALUES.mean(), "that is the mean of the values: the weights are missing"),
    ),
    "nothing": Quantity(
        (P**3, "three independent events of probability p"),
        (3 * P, "probabilities of independent events are multiplied, not added"),
        ((1 - P) ** 3, "that is the probability that all three are kept"),
        (P, "that is one of them; all three must be dropped"),
        (0, "small, but not zero: such a query gets the output 0"),
        digits=2,
    ),
    "inference": CHOICE,
}
CASES = torch.cartesian_prod(*[tensor([0, 1])] * 3)
CHANCES = (CASES * (1 - P) + (1 - CASES) * P).prod(1)
MEAN = CHANCES @ (CASES @ (WEIGHTS * VALUES)) / (1 - P)
SOLUTION = (
    steps(explain_row(WEIGHTS.log(), VALUES, dropout=Dropout(P, SEED), query_start=0), "Dropout"),
    f"sum: {' + '.join(shown(each) for each in DROPPED)} = {shown(DROPPED.sum())}; output: {shown(OUTPUT)}.",
    f"expected: over all eight cases, each with its probability, the mean is {shown(MEAN)}, the output "
    f"without dropout. nothing: {P}³ = {shown(P**3)}.",
    f"inference: {CHOICE}.",
)
EXERCISE = Exercise(
    10,
    "Attention dropout",
    Chapter("important concepts", "5. Attention dropout", ("dropout",)),
    TASK,
    PARTS,
    f'{{"dropped": {(WEIGHTS * MASK).tolist()}, "sum": 1, "output": 0, "inference": "drop"}}',
    SOLUTION,
)
