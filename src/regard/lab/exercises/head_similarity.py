"""Exercise 20: how alike two heads look."""

import itertools
import math

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from regard.inspection.matrix import AttentionMatrix
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import shown, tensor

MAPS = tensor([[[0.8, 0.2], [0.2, 0.8]], [[0.4, 0.6], [0.6, 0.4]], [[0.5, 0.5], [0.9, 0.1]]])
A, B, C = MAPS
HEADS = 8

TASK = f"""\
Three heads look at the same two tokens. Their weights, rows are queries:

  head 1  [[0.8, 0.2],     head 2  [[0.4, 0.6],     head 3  [[0.5, 0.5],
           [0.2, 0.8]]              [0.6, 0.4]]              [0.9, 0.1]]

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
        (PLAIN[1, 2], "that is the pair that is most alike, 2 and 3; asked is the mean of all three"),
    ),
    "pairs": Quantity(
        (math.comb(HEADS, 2), "each of eight with seven others, and each pair twice"),
        (HEADS * (HEADS - 1), "each pair was counted twice"),
        (HEADS**2, "a head is no pair with itself, and each pair was counted twice"),
        (math.comb(HEADS, 2) + HEADS, "a head is no pair with itself"),
        (HEADS // 2, "every head is compared with every other, not with one partner"),
    ),
    "shows": CHOICE,
}
ROWS = "\n".join(f"  head {index}   {shown(row)}" for index, row in enumerate(PLAIN, 1))
SOLUTION = (
    f"plain: 0.8·0.4 + 0.2·0.6 + 0.2·0.6 + 0.8·0.4 = {shown(DOT)}, lengths {shown(A.norm())} and "
    f"{shown(B.norm())}: {shown(PLAIN[0, 1])}.",
    f"centered: [0.3, −0.3, −0.3, 0.3] and [−0.1, 0.1, 0.1, −0.1] point in opposite directions: "
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
    '{"plain": 0.88, "centered": 1, "average": 0.9, "pairs": 56, "shows": "zero"}',
    SOLUTION,
)
