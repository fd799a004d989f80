"""Exercise 20: how alike two heads look."""

import itertools
import math

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from regard.inspection.matrix import AttentionMatrix
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import one_of, shares
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import shown, tensor

STEEP, FLAT = one_of(0.8, 0.7, 0.9), one_of(0.4, 0.3, 0.2)
MAPS = tensor(
    [
        [[STEEP, 1 - STEEP], [1 - STEEP, STEEP]],
        [[FLAT, 1 - FLAT], [1 - FLAT, FLAT]],
        [shares([0.5, 0.5]), shares([0.9, 0.1])],
    ]
)
A, B, C = MAPS
HEADS = one_of(8, 6, 12, 16)


def printed(row: int) -> str:
    """A row of the three maps, as the task shows them."""
    return "     ".join(
        f"{'head ' + str(head) if row == 0 else '':<7} {line}" for head, line in enumerate(_row(row), 1)
    )


def _row(row: int) -> list[str]:
    return [f"{' ' if row else '['}[{each[0]:.1f}, {each[1]:.1f}]{']' if row else ','}" for each in MAPS[:, row]]


TASK = f"""\
Three heads look at the same two tokens. Their weights, rows are queries:

  {printed(0)}
  {printed(1)}

The similarity of two heads is the cosine between their maps, taken as four
numbers each. Compute, to two decimals or more:

  plain     the similarity of head 1 and head 2
  centered  the same, after the mean of each row has been subtracted from it
  self      the similarity of head 1 with itself
  average   the mean similarity over the pairs of different heads (plain)
  pairs     how many pairs of different heads {HEADS} heads have
  shows     two heads that look evenly everywhere have plain similarity: zero,
            one or undefined"""


def similarity(centered: bool = False) -> Tensor:
    """Head by head, as `AttentionMatrix.similarity` has it."""
    return AttentionMatrix.from_weights(MAPS).similarity(centered=centered)


def cosine(one: Tensor, other: Tensor) -> float:
    """The cosine between two maps, taken as lists of numbers."""
    return float(cosine_similarity(one.flatten(), other.flatten(), dim=0))


PLAIN, CENTERED = similarity(), similarity(True)
ABOVE = [PLAIN[i, j] for i, j in itertools.combinations(range(3), 2)]
AVERAGE = float(sum(ABOVE)) / len(ABOVE)
EVEN = torch.full((2, 2), 0.5, dtype=torch.float64)
DOT = float((A * B).sum())
CHOICE = Choice(
    "weights are never negative: can two maps have a cosine of 0?",
    ("zero", "both maps are the same list of equal numbers: their cosine is 1, for equal lists are alike"),
    (
        "one",
        "equal lists have cosine 1, although neither looks anywhere special: plain similarity of heads is high "
        "from the start, and only centering takes that away",
    ),
    ("undefined", "that is the centered one, where nothing is left; plain it is 1"),
    right="one",
)
PARTS = {
    "plain": Quantity(
        (PLAIN[0, 1], "the four products added up, divided by both lengths"),
        (DOT, "that is the dot product; divide by both lengths"),
        (DOT / 2, "divided by the number of rows; a cosine divides by both lengths"),
        (CENTERED[0, 1], "that is the centered one"),
        (cosine(A, B.flip(0)), "row 1 belongs with row 1: you crossed them"),
        ((A - B).abs().mean(), "that is the mean difference; asked is the cosine"),
        ((A - B).norm(), "that is the distance; asked is the cosine"),
    ),
    "centered": Quantity(
        (CENTERED[0, 1], "subtract ½, the mean of each row, then the cosine"),
        (PLAIN[0, 1], "that is the plain one: subtract the mean of each row first"),
        (1, "opposite, not alike: where head 1 looks more than evenly, head 2 looks less"),
        (0, "what is left of both points in opposite directions; 0 would be unrelated"),
        (((A - EVEN) * (B - EVEN)).sum(), "that is the dot product after centering; divide by both lengths"),
    ),
    "self": Quantity(
        (PLAIN[0, 0], "a list of numbers and itself"),
        ((A * A).sum(), "that is the square of its length; divide by the length twice"),
        (0, "a head is as like itself as can be: 1"),
        (A.norm(), "that is its length"),
        digits=3,
    ),
    "average": Quantity(
        (AVERAGE, "three pairs: 1 and 2, 1 and 3, 2 and 3"),
        (PLAIN.mean(), "the diagonal was counted too: a head is no pair with itself"),
        (AVERAGE * 3, "that is the sum; divide by three"),
        (float(CENTERED.sum() - CENTERED.trace()) / 6, "that is with centered similarity"),
        (PLAIN[1, 2], "that is heads 2 and 3 alone; asked is the mean of all three"),
    ),
    "pairs": Quantity(
        (math.comb(HEADS, 2), f"each of {HEADS} with {HEADS - 1} others, and each pair twice"),
        (HEADS * (HEADS - 1), "each pair was counted twice"),
        (HEADS**2, "a head is no pair with itself, and each pair was counted twice"),
        (math.comb(HEADS, 2) + HEADS, "a head is no pair with itself"),
        (HEADS // 2, "every head is compared with every other, not with one partner"),
    ),
    "shows": CHOICE,
}
PRODUCTS = " + ".join(f"{shown(a)}·{shown(b)}" for a, b in zip(A.flatten(), B.flatten(), strict=True))
ROWS = "\n".join(f"  head {index}   {shown(row)}" for index, row in enumerate(PLAIN, 1))
SOLUTION = (
    f"plain: {PRODUCTS} = {shown(DOT)}, lengths {shown(A.norm())} and {shown(B.norm())}: {shown(PLAIN[0, 1])}.",
    f"centered: {shown((A - EVEN).flatten())} and {shown((B - EVEN).flatten())} point in opposite directions: "
    f"{shown(CENTERED[0, 1])}.",
    f"All three, self on the diagonal ({shown(PLAIN[0, 0])}):\n{ROWS}",
    f"average: ({' + '.join(shown(each) for each in ABOVE)}) / 3 = {shown(AVERAGE)}. With the diagonal it "
    f"would be {shown(PLAIN.mean())}: a table of head similarity must say which it means.",
    f"pairs: {HEADS} · {HEADS - 1} / 2 = {math.comb(HEADS, 2)}. shows: {CHOICE}.",
)
EXERCISE = Exercise(
    20,
    "How alike two heads are",
    Chapter("experiment results", "Experiment 3: multi-head diversity", ("heads",)),
    TASK,
    PARTS,
    '{"plain": 0.05, "centered": 1, "average": 0.05, "pairs": 1, "shows": "zero"}',
    SOLUTION,
)
