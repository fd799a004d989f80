"""Exercise 13: what attention and feed-forward cost, counted."""

import torch

from regard.lab.cost import operations
from regard.lab.dimensions import BERT
from regard.lab.exercises.derived import derived
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import one_of
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import shown
from regard.nn import FeedForward, MultiHeadAttention

N, D = one_of(10, 5, 12, 20), one_of(4, 3, 5, 6)
WIDE = 4 * D

TASK = f"""\
A block has d_model = {D}, one head, and a feed-forward layer that leads to {WIDE}
numbers and back. It reads {N} tokens. Count multiplications (each goes with an
addition); softmax, activations and biases are left out:

  projections  of W_Q, W_K, W_V and W_O
  pairs        of Q Kᵀ and of the weights times V, together
  feedforward  of its two matrices
  doubled      by which factor each of the three grows with twice as many
               tokens: three numbers
  even         at which number of tokens pairs cost as much as feed-forward
  bert         the same for BERT-base: d_model {BERT.d_model}, {4 * BERT.d_model:,} in the middle
  moves        which layer lets token 1 change the output of token 3: attention
               or feed-forward"""


def attention(width: int) -> MultiHeadAttention:
    """The attention layer, as shapes without numbers."""
    with torch.device("meta"):
        return MultiHeadAttention(width, 1, projection_bias=False)


def counted(tokens: int, width: int = D) -> tuple[int, int, int]:
    """Multiplications of projections, pairs and feed-forward: half of the operations of the layers themselves."""
    flops = attention(width).summary(tokens).flops
    pairs = flops["scores"] + flops["values"]
    with torch.device("meta"):
        layer, x = FeedForward(width, bias=False), torch.empty(tokens, width)
    return (sum(flops.values()) - pairs) // 2, pairs // 2, operations(lambda: layer(x)) // 2


def even(width: int) -> int:
    """Tokens at which pairs catch up: pairs grow as n², feed-forward as n, so the quotient at n = 1 says it."""
    _, pairs, forward = counted(1, width)
    return forward // pairs


PROJECTIONS, PAIRS, FORWARD = counted(N)
GROWTH = [after / before for before, after in zip(counted(N), counted(2 * N), strict=True)]
CHOICE = Choice(
    "which of the two looks at more than one row at a time?",
    ("attention", "its weights mix the rows; feed-forward treats each row alone, with the same matrices"),
    ("feed-forward", "it treats each token alone, with the same two matrices: nothing passes between tokens"),
    right="attention",
)
PARTS = {
    "projections": Quantity(
        (PROJECTIONS, "four matrices of d × d, for each token"),
        (PROJECTIONS * 3 // 4, "W_O is missing: there are four"),
        (PROJECTIONS // 4, "that is one of the four matrices, or d instead of d² for each of them"),
        (2 * PROJECTIONS, "additions counted too; asked are multiplications alone"),
        (PROJECTIONS // N, f"that is one token; there are {N}"),
    ),
    "pairs": Quantity(
        (PAIRS, "n² pairs, d multiplications for the score and d for the value"),
        (PAIRS // 2, "that is Q Kᵀ alone; the weights times V cost the same again"),
        (2 * PAIRS, "additions counted too; asked are multiplications alone"),
        (2 * N * D, "each of n queries meets each of n keys: n², not n"),
        (2 * N * N, "each pair costs d multiplications, not one"),
        (N * (N + 1) * D, "that is a causal mask's triangle; here every token sees every token"),
    ),
    "feedforward": Quantity(
        (FORWARD, f"{D} · {WIDE} up and {WIDE} · {D} down, for each token"),
        (FORWARD // 2, "that is one matrix; there is a way up and a way down"),
        (2 * FORWARD, "additions counted too; asked are multiplications alone"),
        (2 * N * D * D, f"the middle is {WIDE} numbers wide, not {D}"),
        (FORWARD * N, "each token goes through it alone: n, not n²"),
        (FORWARD // N, f"that is one token; there are {N}"),
    ),
    "doubled": Quantity(
        (GROWTH, "which of them is paid per token, which per pair?"),
        ([2, 2, 2], "pairs are n²: twice the tokens are four times the pairs"),
        ([4, 4, 4], "projections and feed-forward are paid per token, so they double"),
        ([4, 4, 2], "the projections are paid per token too: only pairs are quadratic"),
        ([2, 4, 4], "feed-forward treats each token alone: it doubles"),
        axes=("kind of work",),
    ),
    "even": Quantity(
        (even(D), "2 n² d = 8 n d²"),
        (2 * even(D), "each pair is paid twice, for its score and for its value: 2 n² d, not n² d"),
        (even(D) // 2, "feed-forward has two matrices: 8 n d², not 4 n d²"),
        (D, f"the middle is {WIDE} wide, not {D}: feed-forward costs 8 n d², not 2 n d²"),
        (N, f"at {N} tokens pairs cost {PAIRS:,} and feed-forward {FORWARD:,}"),
    ),
    "bert": Quantity(
        (even(BERT.d_model), "n = 4 d, as before"),
        (BERT.d_model, "that is d_model; it is four times as many"),
        (2 * BERT.d_model, "feed-forward has two matrices: 2 n² d = 8 n d² gives n = 4 d, not 2 d"),
        (4 * BERT.d_k, "all heads together are d_model wide: twelve times 64"),
        (512, "that is the longest text BERT reads: there the pairs are the smaller part"),
        follows=derived("even", ("times", BERT.d_model / D)),
    ),
    "moves": CHOICE,
}
SOLUTION = (
    f"The attention layer over {N} tokens; a multiplication and an addition are two FLOPs:",
    str(attention(D).summary(N)),
    f"projections: 4 n d² = 4 · {N} · {D}² = {PROJECTIONS:,}\n"
    f"pairs:       2 n² d = 2 · {N}² · {D} = {PAIRS:,}\n"
    f"feedforward: 2 n d · 4 d = 8 · {N} · {D}² = {FORWARD:,}, counted in the layer too",
    f"doubled: {', '.join(shown(each) for each in GROWTH)}: only pairs are quadratic.",
    f"even: 2 n² d = 8 n d² at n = 4 d = {even(D)}. bert: {even(BERT.d_model):,} tokens; at its 512, most of "
    "the work is projections and feed-forward.",
    f"moves: {CHOICE}.",
)
EXERCISE = Exercise(
    13,
    "What attention and feed-forward cost",
    Chapter("important concepts", "8. Attention vs feed-forward", ("ffn",)),
    TASK,
    PARTS,
    '{"projections": 4, "pairs": 1, "doubled": [4, 4, 4], "even": 1, "moves": "feed-forward"}',
    SOLUTION,
)
