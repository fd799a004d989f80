"""Exercise 10: attention dropout on one row of weights."""

import torch
from torch import Tensor

from regard.lab.exercises.choice import Choice
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.numbers import tensor
from regard.lab.exercises.quantity import number, numbers
from regard.lab.exercises.worked import from_weights, shown, softmax, steps
from regard.spec.dropout import Dropout

WEIGHTS, VALUES = tensor([0.5, 0.3, 0.2]), tensor([4, 10, 8])
P, GONE = 0.2, 1

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


def kept(seed: int) -> list[bool]:
    """Which of the three weights a seed keeps."""
    return [bool(each) for each in softmax(WEIGHTS.log(), dropout=Dropout(P, seed)) > 0]


PATTERN = [key != GONE for key in range(3)]
SEED = next(seed for seed in range(1000) if kept(seed) == PATTERN)  # the first one that drops just that key
DROPPED = softmax(WEIGHTS.log(), dropout=Dropout(P, SEED))
MASK = tensor([float(each) for each in PATTERN])
OUTPUT, EXPECTED = float(DROPPED @ VALUES), float(WEIGHTS @ VALUES)
RENORMALIZED = WEIGHTS * MASK / (WEIGHTS * MASK).sum()
WRONG: tuple[tuple[Tensor, str], ...] = (
    (WEIGHTS * MASK, "the others grow by 1/(1 − p) = 1.25: otherwise the mean output would shrink by a fifth"),
    (
        RENORMALIZED,
        "made to sum to 1 again: that is a mask, which hides a key before softmax. Dropout multiplies by a fixed 1.25, "
        "whatever was dropped",
    ),
    (WEIGHTS * MASK / P, "divided by p; it is 1 − p, the share that stays"),
    (WEIGHTS * MASK * (1 - P), "multiplied by 1 − p; divide, so that the mean is kept"),
    (WEIGHTS / (1 - P), "nothing was dropped: the second weight becomes 0"),
    (WEIGHTS, "these are the weights before dropout"),
)
CHOICE = Choice(
    "inference",
    "what did the factor 1.25 do in training?",
    "keep",
    {
        "keep": "the factor 1/(1 − p) in training has already seen to it that the means agree",
        "scale": "that belongs to a dropout without the factor 1/(1 − p); with it, scaling again would be too much",
        "drop": "dropout is for training: at inference it would only add noise",
    },
)
PARTS = (
    numbers("dropped", ["key"], "0 for the second, the others divided by 1 − p = 0.8", DROPPED, *WRONG),
    number(
        "sum",
        "add the three up",
        DROPPED.sum(),
        (1, "not any more: a row sums to 1 before dropout, and only on average after it"),
        (float((WEIGHTS * MASK).sum()), "the others grow by 1/(1 − p) = 1.25"),
        (1 - P, "a fifth of the weights is dropped on average, not a fifth of this row's sum"),
        (1 / (1 - P), "that is the factor; the second weight is gone"),
        follows=("dropped", lambda given: given.sum()),
    ),
    number(
        "output",
        "each value times its weight after dropout",
        OUTPUT,
        *((float(weights @ VALUES), f"the weights behind it are wrong: {text}") for weights, text in WRONG[:4]),
        (EXPECTED, "that is the output without dropout"),
        follows=("dropped", lambda given: given @ VALUES),
    ),
    number(
        "expected",
        "each weight is 0 with probability p, and w / (1 − p) otherwise: what is its mean?",
        EXPECTED,
        (EXPECTED * (1 - P), "the factor 1/(1 − p) makes up for what is dropped: the mean of each weight is itself"),
        (EXPECTED / (1 - P), "the factor 1/(1 − p) stands against being dropped with probability p: they cancel"),
        (OUTPUT, "that is this one case; asked is the mean over all of them"),
        (float(VALUES.mean()), "that is the mean of the values: the weights are missing"),
    ),
    number(
        "nothing",
        "three independent events of probability p",
        P**3,
        (3 * P, "probabilities of independent events are multiplied, not added"),
        ((1 - P) ** 3, "that is the probability that all three are kept"),
        (P, "that is one of them; all three must be dropped"),
        (0, "small, but not zero: such a query gets the output 0"),
        digits=2,
    ),
    CHOICE,
)


def solution(width: int) -> str:
    """Dropout by explain, with a seed that drops the second key."""
    keys = ["key 1", "key 2", "key 3"]
    told = from_weights(WEIGHTS[None], VALUES[:, None], dropout=Dropout(P, SEED), key_tokens=keys)
    cases = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 3)
    chances = (cases * (1 - P) + (1 - cases) * P).prod(1)
    mean = float(chances @ (cases @ (WEIGHTS * VALUES)) / (1 - P))
    return "\n\n".join(
        [
            steps(told, width, "Dropout").rstrip(),
            f"sum: {shown(DROPPED[0])} + 0 + {shown(DROPPED[2])} = {shown(DROPPED.sum())}; output: {shown(OUTPUT)}.",
            f"expected: over all eight cases, each with its probability, the mean is {shown(mean)}, the output "
            f"without dropout. nothing: {P}³ = {shown(P**3)}.",
            f"inference: {CHOICE.right}; {CHOICE.why}.",
        ]
    )


EXERCISE = Exercise(
    10,
    "Attention dropout",
    Chapter("important concepts", "5. Attention dropout", ("dropout",)),
    TASK,
    PARTS,
    '{"dropped": [0.5, 0, 0.2], "sum": 1, "output": 3.6, "inference": "drop"}',
    solution,
)
