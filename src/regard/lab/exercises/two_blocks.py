"""Exercise 16: softmax in two blocks, as flash attention does it, and why the result is exact."""

import math

import torch
from torch import Tensor

from regard.engine.partial import Partial, merge
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import distinct, one_of
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import explain_row, shown, softmax, steps, tensor
from regard.lab.maps import attend_statistics
from regard.spec.scores import Dot

SCORES = tensor([*distinct([2, 3], 0, 3), one_of(1, 0, 2), one_of(5, 4)])  # the last is the largest
VALUES = tensor(distinct([1, 2, 3, 4], 1, 9))
FIRST, SECOND = slice(2), slice(2, 4)  # the blocks
OLD, NEW = shown(SCORES[FIRST].max()), shown(SCORES.max())  # the largest score of the first block, and of all
ONES, TWOS, THREES, FOURS = map(shown, SCORES)

TASK = f"""\
A query scores four keys with {shown(SCORES)}; their values are {shown(VALUES)}.
The keys come in two blocks of two, and only one block is in memory at a
time. For a block, m is its largest score, l the sum of e^(score − m), and o the
attention over its keys alone. Compute, to two decimals or more:

  first       m, l and o of the first block, scores {ONES} and {TWOS}: three numbers
  second      m, l and o of the second block, scores {THREES} and {FOURS}: three numbers
  correction  what l of the first block is multiplied by when the largest score
              of all becomes known
  sum         l of all four keys, relative to that largest score
  output      attention over all four keys, made from the two blocks
  exact       the two-block result, compared with softmax over all keys:
              approximate, or exact (but for rounding)"""


def block(keys: slice) -> tuple[Tensor, Partial]:
    """(m, l, o) of a block, and the same as the engine keeps it: output and lse."""
    query = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    key, value = (rows[keys].view(1, 1, -1, 1) for rows in (SCORES, VALUES))
    out, statistics = attend_statistics(query, key, value, "lse", score=Dot(), engine="reference")
    top, lse = SCORES[keys].max(), statistics["lse"]
    return torch.stack([top, (lse.flatten()[0] - top).exp(), out.flatten()[0]]), Partial(out, lse)


(ONE, LEFT), (TWO, RIGHT) = block(FIRST), block(SECOND)
JOINED = merge(LEFT, RIGHT)
OUTPUT, TOP = float(JOINED.out), float(SCORES.max())
SUM = math.exp(float(JOINED.lse) - TOP)
CORRECTION = math.exp(float(ONE[0]) - TOP)


def block_part(truth: Tensor, keys: slice) -> Quantity:
    """The part that asks for m, l and o of a block."""
    (top, total, out), scores, values, shares = truth, SCORES[keys], VALUES[keys], softmax(SCORES)[keys]
    return Quantity(
        (truth, "m first, then e^(score − m) for both, their sum, and the values weighted with it"),
        (
            torch.stack([top, scores.exp().sum(), out]),
            "l is relative to m: sum e^(score − m), so that it cannot overflow",
        ),
        (torch.stack([top, total, (scores - top).exp() @ values]), "o is not yet divided by l"),
        (torch.stack([top, total, values.mean()]), "o is the plain mean of the values: weigh them"),
        (torch.stack([top, total, shares @ values]), "o is over this block's keys alone, as if there were no others"),
        (torch.stack([top, scores.logsumexp(0), out]), "that is the lse, m + ln l; asked is l itself"),
        axes=("of m, l and o",),
    )


CHOICE = Choice(
    "compare your output with softmax over all four",
    ("approximate", "both blocks are rescaled to the same m before they are added: the same sum in another order"),
    ("exact", "the same sum in another order; what is saved is memory, for no row of weights is ever held whole"),
    right="exact",
)
PARTS = {
    "first": block_part(ONE, FIRST),
    "second": block_part(TWO, SECOND),
    "correction": Quantity(
        (CORRECTION, "e^(old m − new m)"),
        (1 / CORRECTION, "upside down: the new m is larger, so what was summed before must shrink"),
        (ONE[0] - TOP, "that is the difference of the two m; take e to that power"),
        (ONE[0] / TOP, "e to the power of the difference of the two m, not their quotient"),
        (1, f"l of the first block is relative to {OLD}, and the largest score is {NEW} now"),
        digits=2,
    ),
    "sum": Quantity(
        (SUM, "correction · l of the first block + l of the second"),
        (ONE[1] + TWO[1], f"the first l is relative to {OLD} and the second to {NEW}: correct the first before adding"),
        (ONE[1] + TWO[1] * CORRECTION, "the wrong block was corrected: the one with the smaller m shrinks"),
        (ONE[1] / CORRECTION + TWO[1], f"the correction is upside down: e^({OLD} − {NEW}), not e^({NEW} − {OLD})"),
        (SCORES.exp().sum(), f"that is relative to 0; asked is relative to the largest score, {NEW}"),
        (float(JOINED.lse), f"that is the lse, {NEW} + ln of the sum; asked is the sum"),
    ),
    "output": Quantity(
        (OUTPUT, "(correction · l₁ · o₁ + l₂ · o₂) / sum"),
        (float(ONE[2] + TWO[2]) / 2, "the plain mean of the two blocks: each counts by its corrected l"),
        (
            float((ONE[1] * ONE[2] + TWO[1] * TWO[2]) / (ONE[1] + TWO[1])),
            f"without the correction the first block counts far too much: its l is relative to {OLD}, not {NEW}",
        ),
        (ONE[2] + TWO[2], "the two outputs were added; each counts by its share of the sum"),
        (OUTPUT * SUM, "not yet divided by the sum"),
        (VALUES.mean(), "that is the plain mean of the values"),
        (TWO[2], "that is the second block alone; the first has a little weight too"),
    ),
    "exact": CHOICE,
}
SOLUTION = (
    f"first:  m = {shown(ONE[0])}, l = e^({ONES}−{OLD}) + e^({TWOS}−{OLD}) = {shown(ONE[1])}, o = {shown(ONE[2])}\n"
    f"second: m = {shown(TWO[0])}, l = e^({THREES}−{NEW}) + e^0 = {shown(TWO[1])}, o = {shown(TWO[2])}",
    f"correction: e^({OLD}−{NEW}) = {shown(CORRECTION)}\n"
    f"sum:        {shown(CORRECTION)} · {shown(ONE[1])} + {shown(TWO[1])} = {shown(SUM)}\n"
    f"output:     ({shown(CORRECTION)} · {shown(ONE[1])} · {shown(ONE[2])} + {shown(TWO[1])} · {shown(TWO[2])})"
    f" / {shown(SUM)} = {shown(OUTPUT)}",
    f"exact: {CHOICE}. All four keys at once:",
    steps(explain_row(SCORES, VALUES), "Exponentials"),
)
EXERCISE = Exercise(
    16,
    "Softmax in two blocks",
    Chapter("important concepts", "10. Computational tricks: flash attention, chunks", ("tricks",)),
    TASK,
    PARTS,
    '{"correction": 9, "sum": 9, "output": 0.5, "exact": "approximate"}',
    SOLUTION,
)
