"""Exercise 10: attention dropout on one row of weights."""

import torch
from torch import Tensor

from regard.lab.exercises.derived import derived
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import explain_row, shown, softmax, steps, tensor
from regard.spec.dropout import Dropout

WEIGHTS, VALUES = tensor([0.5, 0.3, 0.2]), tensor([4, 10, 8])
P = 0.2

TASK = """\
A query has the weights [0.5, 0.3, 0.2] for keys whose values are the numbers
4, 10 and 8. Dropout with p = 0.2 acts on the weights, and this time it drops
the second one. Compute, to two decimals or more:

  dropped    the three weights that multiply the values now
  sum        what they sum to
  output     the output of the query, a number
  expected   the mean output over all that may be dropped
  nothing    the probability that all three are dropped, to two significant
             digits
  inference  what the trained model does with its weights: keep, scale (times
             0.8) or drop"""


def dropped(seed: int) -> Tensor:
    """The three weights after dropout."""
    return softmax(WEIGHTS.log(), dropout=Dropout(P, seed))


MASK = tensor([1, 0, 1])
SEED = next(seed for seed in range(1000) if torch.equal(dropped(seed) > 0, MASK > 0))  # drops just the second key
DROPPED = dropped(SEED)
OUTPUT, EXPECTED = DROPPED @ VALUES, WEIGHTS @ VALUES
KEPT = WEIGHTS * MASK
WRONG = (
    (KEPT, "the others grow by 1/(1 − p) = 1.25: otherwise the mean output would shrink by a fifth"),
    (
        KEPT / KEPT.sum(),
        "made to sum to 1 again: that is a mask, which hides a key before softmax. Dropout multiplies by a fixed 1.25, "
        "whatever was dropped",
    ),
    (KEPT / P, "divided by p; it is 1 − p, the share that stays"),
    (KEPT * (1 - P), "multiplied by 1 − p; divide, so that the mean is kept"),
    (WEIGHTS / (1 - P), "nothing was dropped: the second weight becomes 0"),
    (WEIGHTS, "these are the weights before dropout"),
)
CHOICE = Choice(
    "what did the factor 1.25 do in training?",
    ("keep", "the factor 1/(1 − p) in training has already seen to it that the means agree"),
    ("scale", "that belongs to a dropout without the factor 1/(1 − p); with it, scaling again would be too much"),
    ("drop", "dropout is for training: at inference it would only add noise"),
    right="keep",
)
PARTS = {
    "dropped": Quantity((DROPPED, "0 for the second, the others divided by 1 − p = 0.8"), *WRONG, axes=("key",)),
    "sum": Quantity(
        (DROPPED.sum(), "add the three up"),
        (1, "not any more: a row sums to 1 before dropout, and only on average after it"),
        (KEPT.sum(), "the others grow by 1/(1 − p) = 1.25"),
        (1 - P, "a fifth of the weights is dropped on average, not a fifth of this row's sum"),
        (1 / (1 - P), "that is the factor; the second weight is gone"),
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
    f"sum: {shown(DROPPED[0])} + 0 + {shown(DROPPED[2])} = {shown(DROPPED.sum())}; output: {shown(OUTPUT)}.",
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
    '{"dropped": [0.5, 0, 0.2], "sum": 1, "output": 3.6, "inference": "drop"}',
    SOLUTION,
)
