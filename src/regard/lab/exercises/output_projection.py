"""Exercise 12: two heads, put side by side and mixed by W_O."""

import torch

from regard.inspection.explain import explain
from regard.lab.exercises.derived import derived
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import one_of, whole
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import shown, steps, tensor, weights

VALUES = tensor(whole([[[0, 1], [2, 3]], [[2, -3], [4, 1]]], -3, 4))  # head, token, dimension
W_O = tensor(whole([[1, 0, 1], [0, 1, 1], [2, 0, 0], [0, -1, 1]], -1, 2))
H, D_V, D_MODEL = 2, 2, 3
COUNT, WIDTH, OUT = one_of(12, 8, 16), one_of(64, 32, 80), one_of(1024, 768, 2048)  # of part `shape`
HEAD_1, HEAD_2 = (f"{shown(one)} and {shown(two)}" for one, two in VALUES)
MATRIX = [", ".join(f"{shown(number):>2}" for number in row) for row in W_O]

TASK = f"""\
A layer has two heads. In both, the query is [0, 0], so its two keys get the
same weight. The values of the two tokens, d_v = 2, and W_O are:

  head 1:  {HEAD_1:<26} W_O = [[{MATRIX[0]}],
  head 2:  {HEAD_2:<26}        [{MATRIX[1]}],
                                             [{MATRIX[2]}],
                                             [{MATRIX[3]}]]
Compute:

  heads    the output of each head, 2 × 2: a row for each head
  concat   the heads side by side, four numbers
  output   concat · W_O, three numbers
  shares   what each head adds to the output, 2 × 3: a row for each head
  shape    of W_O for h = {COUNT}, d_v = {WIDTH}, d_model = {OUT}: [rows, columns]
  without  without W_O, which dimensions of the output head 1 reaches: all,
           its-own or none"""


QUERY, KEYS = torch.zeros(1, D_V, dtype=torch.float64), torch.zeros(2, D_V, dtype=torch.float64)
HEADS = (weights(QUERY, KEYS) @ VALUES)[:, 0]
CONCAT = HEADS.flatten()
OUTPUT = CONCAT @ W_O
SHARES = torch.stack([head @ rows for head, rows in zip(HEADS, W_O.split(D_V), strict=True)])
CHOICE = Choice(
    "where do the numbers of head 1 stand in concat?",
    ("all", "without W_O nothing mixes the heads: head 1 fills the first d_v dimensions and no other"),
    ("its-own", "the first d_v dimensions; mixing the heads is what W_O is for"),
    ("none", "its numbers are there, in the first d_v dimensions"),
    right="its-own",
)
PARTS = {
    "heads": Quantity(
        (HEADS, "scores 0 and 0, weights ½ and ½: the mean of the two values"),
        (VALUES.sum(1), "that is the sum of the values; the weights are ½ each, for they sum to 1"),
        (VALUES.mean(0), "that is the mean over the heads; each head has an output of its own"),
        (VALUES[:, 0], "those are the first token's values; a query of zeros scores both keys alike"),
        (torch.zeros(H, D_V), "the query is 0, not the values: scores of 0 give weights of ½"),
        axes=("head", "dimension"),
    ),
    "concat": Quantity(
        (CONCAT, "all of head 1, then all of head 2"),
        (HEADS.mT.flatten(), "interleaved: first all numbers of head 1, then all of head 2"),
        (HEADS.flip(0).flatten(), "head 2 stands first"),
        (HEADS.sum(0), "added; the heads are put side by side, so that none is lost in the other"),
        (HEADS.mean(0), "averaged; the heads are put side by side, so that none is lost in the other"),
        axes=("place",),
        follows=derived("heads", "flatten"),
    ),
    "output": Quantity(
        (OUTPUT, "each column of W_O times the four numbers"),
        (HEADS.mT.flatten() @ W_O, "the heads were interleaved before W_O: first all of head 1, then all of head 2"),
        (HEADS.flip(0).flatten() @ W_O, "head 2 stood first: its numbers belong to the last two rows of W_O"),
        (SHARES[0], "that is what head 1 adds; head 2 is missing"),
        (SHARES[1], "that is what head 2 adds; head 1 is missing"),
        (SHARES.mean(0), "what the heads add is added up, not averaged"),
        (W_O @ tensor([1, 1, 1]), "that is the sum of each row of W_O; multiply columns with concat"),
        axes=("dimension of the model",),
        follows=derived("concat", ("matmul", W_O)),
    ),
    "shares": Quantity(
        (SHARES, "head 1 times the first two rows of W_O, head 2 times the last two"),
        (SHARES.flip(0), "the heads have changed places"),
        (
            torch.stack([head @ rows for head, rows in zip(HEADS, W_O.split(D_V)[::-1], strict=True)]),
            "each head was multiplied with the other's rows of W_O: head 1 has the first two",
        ),
        (OUTPUT.expand(H, D_MODEL) / H, "the output was halved; each head adds what its own rows of W_O make of it"),
        axes=("head", "dimension of the model"),
    ),
    "shape": Quantity(
        ([COUNT * WIDTH, OUT], "in: h · d_v, out: d_model"),
        ([OUT, OUT], f"d_model × d_model only where h · d_v = d_model; here it is {COUNT * WIDTH}"),
        ([OUT, COUNT * WIDTH], "transposed: tokens are rows, so the rows of W_O take what comes in"),
        ([WIDTH, OUT], f"that is the part of one head; all {COUNT} stand one below the other"),
        ([COUNT, WIDTH], "that is what comes in, before it is put side by side"),
        axes=("side",),
    ),
    "without": CHOICE,
}
EXPLAINED = explain(QUERY, KEYS, VALUES[0], key_tokens=["token 1", "token 2"])
SOLUTION = (
    steps(EXPLAINED, "Exponentials"),
    f"heads: {shown(HEADS[0])} and, in the same way, {shown(HEADS[1])}. concat: {shown(CONCAT)}.",
    f"output: {shown(CONCAT)} · W_O = {shown(OUTPUT)}.",
    f"shares: {shown(HEADS[0])} · first two rows = {shown(SHARES[0])}, {shown(HEADS[1])} · last two rows = "
    f"{shown(SHARES[1])}; their sum is the output. So W_O is a small matrix for each head, and a head that is "
    "taken out takes just its share away.",
    f"shape: {COUNT} · {WIDTH} = {COUNT * WIDTH} rows, {OUT:,} columns.",
    f"without: {CHOICE}.",
)
EXERCISE = Exercise(
    12,
    "Two heads and W_O",
    Chapter("important concepts", "7. Output projection", ("projection",)),
    TASK,
    PARTS,
    '{"heads": [[2, 4], [6, -2]], "concat": [1, 3, 2, -1], "output": [1, 1, 1], "without": "all"}',
    SOLUTION,
)
