"""Exercise 14: the n × n matrix, read along its rows and down its columns."""

import torch
from torch import Tensor

from regard.inspection.matrix import AttentionMatrix
from regard.inspection.records import Grid
from regard.lab.exercises.derived import derived
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import one_of, shares
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import shown, tensor

TOKENS = ("cat", "sat", "down")
TABLE = tensor([shares(row) for row in ([0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.1, 0.6])])
GAPS = ((0, 2), (1, 1))
LONG = one_of(1000, 500, 2000, 300)

TASK = f"""\
Rows are queries, columns are keys; two weights are missing:

         cat   sat   down
  cat    {TABLE[0, 0]:.1f}   {TABLE[0, 1]:.1f}    a
  sat    {TABLE[1, 0]:.1f}    b    {TABLE[1, 2]:.1f}
  down   {TABLE[2, 0]:.1f}   {TABLE[2, 1]:.1f}   {TABLE[2, 2]:.1f}

  missing   a and b: two numbers
  entry     how much "down" attends to "cat"
  received  the attention that cat, sat and down receive: three numbers
  total     the sum of all nine weights
  others    the attention that "sat" receives from the other two words
  scores    how many scores a text of {LONG:,} tokens has, in one head
  column    column j is the attention: given-by-j or received-by-j"""


def matrix(table: Tensor) -> AttentionMatrix:
    """The weights as a matrix with its words."""
    return AttentionMatrix.from_weights(table, TOKENS, TOKENS)


RECEIVED = matrix(TABLE).received()
MISSING = torch.stack([TABLE[place] for place in GAPS])
HOLES = TABLE.clone()
HOLES[0, 2] = HOLES[1, 1] = 0.0
SAT, OWN = RECEIVED[1], TABLE[1, 1]
CHOICE = Choice(
    "whose rows does a column run through?",
    ("given-by-j", "what token j gives stands in its row, which sums to 1; a column holds one weight from every row"),
    ("received-by-j", "one weight from every row: what each token gives to token j"),
    right="received-by-j",
)
PARTS = {
    "missing": Quantity(
        (MISSING, "each row sums to 1"),
        (1 - HOLES.sum(0)[[2, 1]], "you made the columns sum to 1; it is the rows that do"),
        (MISSING.flip(0), "the other way round: a is in the row of cat"),
        ([float(TABLE[0, 2]), float(TABLE[1, 0])], "b like its neighbor: the row of sat must sum to 1"),
        ([0, 0], "softmax never gives 0: each row sums to 1"),
        axes=("gap",),
    ),
    "entry": Quantity(
        (TABLE[2, 0], "the row is the one that looks"),
        (TABLE[0, 2], 'the other way round: that is how much "cat" attends to "down"'),
        (TABLE[0, 0], 'that is "cat" attending to itself'),
        (TABLE[2, 1], 'that is "down" attending to "sat"'),
        (RECEIVED[0], 'that is all that "cat" receives; asked is what comes from "down"'),
        (TABLE[2, 2], 'that is "down" attending to itself'),
    ),
    "received": Quantity(
        (RECEIVED, "add up each column"),
        (TABLE.sum(1), "those are the sums of the rows, what each token gives; columns need not sum to 1"),
        (TABLE.mean(0), "that is the mean of each column; asked is the sum"),
        (RECEIVED - TABLE.diag(), "what a token gives itself counts too: the diagonal is missing"),
        (HOLES.sum(0), "the missing weights are still missing: fill them in first"),
        (TABLE.max(0).values, "that is the largest weight of each column; asked is the sum"),
        axes=("key",),
    ),
    "total": Quantity(
        (TABLE.sum(), "n rows, each with its sum"),
        (1, "each row sums to 1, and there are three"),
        (HOLES.sum(), "the missing weights are still missing"),
        (9, "that is how many weights there are"),
        follows=derived("received", "sum"),
    ),
    "others": Quantity(
        (SAT - OWN, "the column of sat without the diagonal"),
        (SAT, "that is with what sat gives itself"),
        (TABLE[1].sum() - OWN, "that is what sat gives to the others: its row; asked is its column"),
        (OWN, "that is what sat gives itself"),
        (1, "that is the sum of its row; columns need not sum to 1"),
    ),
    "scores": Quantity(
        (LONG**2, "each token with each token"),
        (LONG, "each token meets each token: n · n"),
        (LONG * (LONG + 1) // 2, "that is with a causal mask"),
        (LONG * (LONG - 1), "a token meets itself too"),
        (2 * LONG, "n · n, not n + n"),
    ),
    "column": CHOICE,
}
GRID = Grid(TABLE.tolist(), TOKENS, TOKENS, "weights", limits=(0.0, 1.0))
SOLUTION = (
    GRID,
    f"missing: a = 1 − {shown(TABLE[0, 0])} − {shown(TABLE[0, 1])} = {shown(MISSING[0])}, b = 1 − "
    f"{shown(TABLE[1, 0])} − {shown(TABLE[1, 2])} = {shown(MISSING[1])}.",
    f'entry: the row of "down", the column of "cat": {shown(TABLE[2, 0])}. The mirrored weight, cat to down, '
    f"is another one: {shown(TABLE[0, 2])}.",
    f"received: {shown(RECEIVED)}, the sums of the columns. total: {shown(TABLE.sum())}, whichever way it is "
    "added up, so the columns sum to 1 on average.",
    f"others: {shown(SAT)} − {shown(OWN)} = {shown(SAT - OWN)}. scores: {LONG:,}² = {LONG**2:,}.",
    f"column: {CHOICE}.",
)
EXERCISE = Exercise(
    14,
    "Rows and columns of the n × n matrix",
    Chapter("important concepts", "9. Why n × n matrix?", ("rows", "patterns")),
    TASK,
    PARTS,
    '{"missing": [0.5, 0.05], "received": [1, 1, 1], "total": 1, "column": "given-by-j"}',
    SOLUTION,
)
