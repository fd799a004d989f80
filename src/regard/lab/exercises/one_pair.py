"""Exercise 4: six score functions, one query and one key."""

import math

import torch
from torch import Tensor

from regard.inspection.explain import explain
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import whole
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import shown, steps, tensor
from regard.lab.maps import attend_statistics
from regard.spec.scores import Additive, ConcatMLP, Cosine, Dot, General, ScaledDot, Score

Q, K = tensor(whole([1, 2], 1, 4)), tensor(whole([4, 3], 1, 4))
W = tensor(whole([[1, 0], [1, -1]], -1, 1))
W_1, W_2 = tensor(whole([[2, -2], [0, 1]], -2, 2)) / 2, tensor(whole([[1, 0], [0, -1]], -1, 1)) / 2
V = tensor(whole([2, 1], 1, 3))


def halves(matrix: Tensor) -> str:
    """A matrix as the task prints it, with ½ for 0.5."""
    return shown(matrix).replace("0.5", "½")


GIVEN = (
    (f"q = {shown(Q)}", f"k = {shown(K)}", f"W = {shown(W)}"),
    (f"W₁ = {halves(W_1)}", f"W₂ = {halves(W_2)}", f"v = {shown(V)}"),
)
PRINTED = "\n".join(f"  {one:<24} {two:<23} {three}" for one, two, three in GIVEN)

TASK = f"""\
One query and one key, and what some score functions have learned:

{PRINTED}

W₁ and W₂ stand before a column, as in W₁q. Compute, to two decimals or more:

  dot       q · k
  scaled    q · k / √d_k
  cosine    q · k / (‖q‖ ‖k‖)
  general   qᵀ W k
  additive  v · tanh(W₁q + W₂k)
  concat    v · relu(W₁q + W₂k), a hidden layer over [q; k] with matrix [W₁ W₂]
  wider     k gets a third number: which still works if its matrix gets a
            third column? One of dot, cosine, additive"""

SCORES: dict[str, Score] = {
    "dot": Dot(),
    "scaled": ScaledDot(),
    "cosine": Cosine(),
    "general": General(W),
    "additive": Additive(W_1, W_2, V),
    "concat": ConcatMLP(W_1, W_2, None, V, "relu"),
}


def score(of: Score) -> float:
    """The score of the pair, by `attend`: the largest logit of a single key."""
    query, key = Q.view(1, 1, 1, 2), K.view(1, 1, 1, 2)
    return float(attend_statistics(query, key, key, "max_logit", score=of)[1]["max_logit"])


DOT, SCALED, COSINE, GENERAL, ADDITIVE, CONCAT = (score(of) for of in SCORES.values())
HIDDEN = W_1 @ Q + W_2 @ K


def additive(a: Tensor, b: Tensor) -> float:
    """The additive score of a query and key that are projected already."""
    return float(V @ torch.tanh(a + b))


CHOICE = Choice(
    "who multiplies q and k number by number?",
    ("dot", "the third number of k has no partner in q: dot products need equal widths"),
    ("cosine", "a dot product is inside: the third number of k has no partner in q"),
    ("additive", "W₂ becomes 2 × 3, and W₁q and W₂k still have two numbers each (general works too: W 2 × 3)"),
    right="additive",
)
PARTS = {
    "dot": Quantity(
        (DOT, " + ".join(f"{shown(q)} · {shown(k)}" for q, k in zip(Q, K, strict=True))),
        (SCALED, "already divided by √d_k; that is the next part"),
        (COSINE, "already divided by the lengths; that is 'cosine'"),
        (Q.norm() * K.norm(), "that is ‖q‖ · ‖k‖: what the score would be if both pointed the same way"),
        (Q.sum() * K.sum(), "you multiplied the sums; multiply number by number, then add"),
        (Q @ K.flip(0), "first with first and second with second: you crossed them"),
    ),
    "scaled": Quantity(
        (SCALED, "divide by √d_k, the root of the width of a key"),
        (DOT, "the division by √d_k is missing"),
        (DOT / 2, "divided by d_k = 2; it is √d_k = 1.414"),
        (DOT * math.sqrt(2), "multiplied by √d_k; divide"),
        (DOT / float(K.norm()), f"divided by the length of the key, {shown(K.norm())}; d_k is how many numbers it has"),
    ),
    "cosine": Quantity(
        (COSINE, f"divide the dot product by both lengths, √{shown(Q @ Q)} and √{shown(K @ K)}"),
        (DOT / float(K.norm()), "divided by the length of k alone; q has one too"),
        (DOT / float(Q.norm()), "divided by the length of q alone; k has one too"),
        (
            DOT / float(Q.norm() * K.norm()) ** 2,
            f"divided by the squared lengths: take the roots, √{shown(Q @ Q)} and √{shown(K @ K)}",
        ),
        (math.acos(COSINE), "that is the angle itself, in radians; the score is its cosine"),
        (math.degrees(math.acos(COSINE)), "that is the angle itself, in degrees; the score is its cosine"),
    ),
    "general": Quantity(
        (GENERAL, "first qᵀW, a row of two numbers, then its dot product with k"),
        (K @ W @ Q, "query and key have changed places (or W was transposed): qᵀWk is not kᵀWq"),
        (DOT, "W is missing; with W the unit matrix this would be right"),
        (GENERAL / math.sqrt(2), "divided by √d_k; the general score is not scaled, W can learn to"),
        (Q @ W.abs() @ K, "a minus sign in W was lost"),
    ),
    "additive": Quantity(
        (ADDITIVE, "W₁q and W₂k are added first, then tanh of each number, then the weighted sum by v"),
        (V @ HIDDEN, "tanh is missing: without it the score would be a plain sum, and q and k would not meet"),
        (math.tanh(float(V @ HIDDEN)), "tanh comes before v, on each hidden number: v · tanh(…), not tanh(v · …)"),
        (
            float(V @ (torch.tanh(W_1 @ Q) + torch.tanh(W_2 @ K))),
            "tanh was taken of W₁q and of W₂k apart: then q would add the same to every key, and softmax forgets that",
        ),
        (torch.tanh(HIDDEN).sum(), "v is missing: its numbers weigh the hidden ones"),
        (additive(Q @ W_1, K @ W_2), "the matrices were transposed: here they stand before a column, row by row"),
        (additive(W_1 @ Q, 0 * Q), "W₂k is missing: the score would not know the key"),
        (CONCAT, "that is relu, the next part; here it is tanh"),
    ),
    "concat": Quantity(
        (CONCAT, "the hidden numbers are those of 'additive'; relu makes negative ones 0"),
        (V @ HIDDEN, "relu is missing, or came after v: it acts on each hidden number"),
        (ADDITIVE, "that is tanh, the part before; here it is relu"),
        (HIDDEN.relu().sum(), "v is missing: its numbers weigh the hidden ones"),
        (V @ HIDDEN.abs(), "relu makes a negative number 0; you dropped its sign"),
    ),
    "wider": CHOICE,
}
EXPLAINED = explain(Q[None], K[None], K[None], score=SCORES["additive"])
SOLUTION = (
    f"dot       {' + '.join(f'{shown(q)}·{shown(k)}' for q, k in zip(Q, K, strict=True))} = {shown(DOT)}\n"
    f"scaled    {shown(DOT)} / √2 = {shown(SCALED)}\n"
    f"cosine    {shown(DOT)} / ({shown(Q.norm())} · {shown(K.norm())}) = {shown(COSINE)}\n"
    f"general   qᵀW = {shown(Q @ W)}, times k: {shown(GENERAL)}\n"
    f"additive  {shown(ADDITIVE)}, worked out below\n"
    f"concat    W₁q + W₂k = {shown(HIDDEN)}, relu {shown(HIDDEN.relu())}, times v: {shown(CONCAT)}",
    steps(EXPLAINED, stop="Scores"),
    f"wider: {CHOICE}.",
)
EXERCISE = Exercise(
    4,
    "Six scores for one pair",
    Chapter("score functions", "The three main score functions, other score functions", ("scores",)),
    TASK,
    PARTS,
    '{"dot": 5, "scaled": 5, "cosine": 2, "general": 10, "additive": 1.5, "concat": 1.5, "wider": "dot"}',
    SOLUTION,
)
