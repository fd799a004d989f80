"""Exercise 16: softmax in two blocks, as flash attention does it, and why the result is exact."""

import math

import torch
from torch import Tensor

from regard.engine.partial import Partial, merge
from regard.inspection.explain import explain
from regard.lab.exercises.choice import Choice
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.numbers import tensor
from regard.lab.exercises.quantity import Quantity, number, numbers
from regard.lab.exercises.worked import shown, softmax, steps
from regard.lab.maps import attend_statistics
from regard.spec.scores import Dot

SCORES, VALUES = tensor([2, 3, 1, 5]), tensor([1, 2, 3, 4])
HALF = 2

TASK = """\
A query scores four keys with [2, 3, 1, 5]; their values are the numbers 1, 2, 3
and 4. The keys come in two blocks of two, and only one block is in memory at a
time. For a block, m is its largest score, l the sum of e^(score − m), and o the
attention over its keys alone. Compute, to two decimals or more:

  first       m, l and o of the first block, scores 2 and 3: three numbers
  second      m, l and o of the second block, scores 1 and 5: three numbers
  correction  what l of the first block is multiplied by when the largest score
              of all becomes known
  sum         l of all four keys, relative to that largest score
  output      attention over all four keys, made from the two blocks
  exact       the two-block result, compared with softmax over all keys:
              approximate, or exact (but for rounding)"""


def block(scores: Tensor, values: Tensor) -> tuple[Tensor, Partial]:
    """(m, l, o) of a block, and the same as the engine keeps it: output and lse."""
    query, key = torch.ones(1, 1, 1, 1, dtype=torch.float64), scores.view(1, 1, -1, 1)
    out, seen = attend_statistics(query, key, values.view(1, 1, -1, 1), "lse", score=Dot(), engine="reference")
    top = scores.max()
    return torch.stack([top, (seen["lse"].flatten()[0] - top).exp(), out.flatten()[0]]), Partial(out, seen["lse"])


(ONE, LEFT), (TWO, RIGHT) = block(SCORES[:HALF], VALUES[:HALF]), block(SCORES[HALF:], VALUES[HALF:])
JOINED = merge(LEFT, RIGHT)
OUTPUT, TOP = float(JOINED.out), float(SCORES.max())
SUM = math.exp(float(JOINED.lse) - TOP)
CORRECTION = math.exp(float(ONE[0]) - TOP)


def part(name: str, truth: Tensor, scores: Tensor, values: Tensor) -> Quantity:
    """The part that asks for m, l and o of a block."""
    top, total, out = truth
    shares = softmax(SCORES)[:HALF] if name == "first" else softmax(SCORES)[HALF:]
    return numbers(
        name,
        ["of m, l and o"],
        "m first, then e^(score − m) for both, their sum, and the values weighted with it",
        truth,
        (
            torch.stack([top, scores.exp().sum(), out]),
            "l is relative to m: sum e^(score − m), so that it cannot overflow",
        ),
        (torch.stack([top, total, (scores - top).exp() @ values]), "o is not yet divided by l"),
        (torch.stack([top, total, values.mean()]), "o is the plain mean of the values: weigh them"),
        (torch.stack([top, total, shares @ values]), "o is over this block's keys alone, as if there were no others"),
        (torch.stack([top, scores.logsumexp(0), out]), "that is the lse, m + ln l; asked is l itself"),
    )


CHOICE = Choice(
    "exact",
    "compare your output with softmax over all four",
    "exact",
    {
        "approximate": "both blocks are rescaled to the same m before they are added: the same sum in another order",
        "exact": "the same sum in another order; what is saved is memory, for no row of weights is ever held whole",
    },
)
PARTS = (
    part("first", ONE, SCORES[:HALF], VALUES[:HALF]),
    part("second", TWO, SCORES[HALF:], VALUES[HALF:]),
    number(
        "correction",
        "e^(old m − new m)",
        CORRECTION,
        (1 / CORRECTION, "upside down: the new m is larger, so what was summed before must shrink"),
        (float(ONE[0]) - TOP, "that is the difference of the two m; take e to that power"),
        (float(ONE[0]) / TOP, "e to the power of the difference of the two m, not their quotient"),
        (1, "l of the first block is relative to 3, and the largest score is 5 now"),
        digits=2,
    ),
    number(
        "sum",
        "correction · l of the first block + l of the second",
        SUM,
        (float(ONE[1] + TWO[1]), "the first l is relative to 3 and the second to 5: correct the first before adding"),
        (float(ONE[1] + TWO[1] * CORRECTION), "the wrong block was corrected: the one with the smaller m shrinks"),
        (float(ONE[1] / CORRECTION + TWO[1]), "the correction is upside down: e^(3 − 5), not e^(5 − 3)"),
        (float(SCORES.exp().sum()), "that is relative to 0; asked is relative to the largest score, 5"),
        (float(JOINED.lse), "that is the lse, 5 + ln of the sum; asked is the sum"),
    ),
    number(
        "output",
        "(correction · l₁ · o₁ + l₂ · o₂) / sum",
        OUTPUT,
        (float(ONE[2] + TWO[2]) / 2, "the plain mean of the two blocks: each counts by its corrected l"),
        (
            float((ONE[1] * ONE[2] + TWO[1] * TWO[2]) / (ONE[1] + TWO[1])),
            "without the correction the first block counts far too much: its l is relative to 3, not 5",
        ),
        (float(ONE[2] + TWO[2]), "the two outputs were added; each counts by its share of the sum"),
        (OUTPUT * SUM, "not yet divided by the sum"),
        (float(VALUES.mean()), "that is the plain mean of the values"),
        (float(TWO[2]), "that is the second block alone; the first has a little weight too"),
    ),
    CHOICE,
)


def solution(width: int) -> str:
    """Both blocks, the merge as the engine does it, and softmax over all keys for comparison."""
    told = explain(
        [[1]], SCORES[:, None], VALUES[:, None], score=Dot(), key_tokens=["key 1", "key 2", "key 3", "key 4"]
    )
    return "\n\n".join(
        [
            f"first:  m = {shown(ONE[0])}, l = e^(2−3) + e^0 = {shown(ONE[1])}, o = {shown(ONE[2])}\n"
            f"second: m = {shown(TWO[0])}, l = e^(1−5) + e^0 = {shown(TWO[1])}, o = {shown(TWO[2])}",
            f"correction: e^(3−5) = {shown(CORRECTION)}\n"
            f"sum:        {shown(CORRECTION)} · {shown(ONE[1])} + {shown(TWO[1])} = {shown(SUM)}\n"
            f"output:     ({shown(CORRECTION)} · {shown(ONE[1])} · {shown(ONE[2])} + {shown(TWO[1])} · {shown(TWO[2])})"
            f" / {shown(SUM)} = {shown(OUTPUT)}",
            f"exact: {CHOICE.right}; {CHOICE.why}. All four keys at once:",
            steps(told, width, "Exponentials").rstrip(),
        ]
    )


EXERCISE = Exercise(
    16,
    "Softmax in two blocks",
    Chapter("important concepts", "10. Computational tricks: flash attention, chunks", ("tricks",)),
    TASK,
    PARTS,
    '{"correction": 7.39, "sum": 2.39, "output": 2.86, "exact": "approximate"}',
    solution,
)
