"""Exercise 3: one word in two sentences gets two vectors."""

import math

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from regard.inspection.explain import explain
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import one_of
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import shown, steps, tensor, weights
from regard.spec.masks import Dense
from regard.spec.scores import ScaledDot

MUCH, LITTLE, OWN = one_of(2, 3, 4, 5), one_of(0, 1, -1), one_of(1, 2, 0.5)
VECTORS = ([0, 0], [MUCH, LITTLE], [LITTLE, MUCH], [OWN, OWN])
THE, RIVER, MONEY, BANK = (tensor(vector) for vector in VECTORS)
D_K = 2

TASK = f"""\
"bank" has one embedding, whatever it means:

  the {shown(THE)}     river {shown(RIVER)}     money {shown(MONEY)}     bank {shown(BANK)}

Queries, keys and values are the embeddings themselves, scores are q · k / √2,
no mask. Compute, to two decimals or more:

  river    the output of attention for "bank" in "the river bank"
  money    the output for "bank" in "the money bank"
  cosine   the cosine of the angle between these two outputs
  differs  what makes them differ: embedding (of "bank"), weights (of its row)
           or values (that it gathers)"""


def sentence(other: Tensor) -> Tensor:
    """`the … bank` as rows."""
    return torch.stack([THE, other, BANK])


def output(other: Tensor, scale: float = 1 / math.sqrt(D_K), row: int = 2, **spec: object) -> Tensor:
    """The new vector of a word in that sentence."""
    words = sentence(other)
    return (weights(words, words, score=ScaledDot(scale), **spec) @ words)[row]


def cosine(one: Tensor, other: Tensor) -> float:
    """The cosine of the angle between two vectors."""
    return float(cosine_similarity(one, other, dim=0))


def vector(name: str, other: Tensor, wrong: Tensor) -> Quantity:
    """The part that asks for "bank" beside a word; `wrong` is the other sentence's word."""
    words = sentence(other)
    unseen = torch.tensor([False, True, True]).expand(3, 3)
    return Quantity(
        (
            output(other),
            "scores of bank with every word, ÷ √2, softmax over the three, then the weighted sum of their vectors",
        ),
        (BANK, 'that is the embedding of "bank": nothing has been gathered from the sentence yet'),
        (output(wrong), "that is bank in the other sentence"),
        (words.mean(0), "that is the plain mean: each word counts by its weight, not equally"),
        (words.sum(0), "that is the plain sum: the weights are missing"),
        (output(other, 1.0), "the division by √d_k is missing"),
        (output(other, 1 / D_K), "the scores were divided by d_k = 2; it is √d_k = 1.414"),
        (
            output(other, mask=Dense(unseen)),
            '"the" was left out: its score is 0, e^0 = 1, so it takes weight from the others although it adds nothing',
        ),
        (output(other, row=1), f'that is the output for "{name}"; asked is the row of "bank"'),
        (
            output(other) + BANK,
            "the embedding was added: that is the residual connection around attention, not its output",
        ),
        axes=("dimension",),
    )


FIRST, SECOND = output(RIVER), output(MONEY)
CHOICE = Choice(
    "compare the two rows of weights",
    ("embedding", f"the embedding is looked up in a table and does not know the sentence: {shown(BANK)} in both"),
    ("weights", "both rows are the same, for bank · river = bank · money; what is gathered with them is not"),
    ("values", "the rows of weights are the same here; what stands in the sentence is handed over with them"),
    right="values",
)
PARTS = {
    "river": vector("river", RIVER, MONEY),
    "money": vector("money", MONEY, RIVER),
    "cosine": Quantity(
        (cosine(FIRST, SECOND), "the dot product of the two outputs, divided by both lengths"),
        (1, "that holds for the embedding of bank, which is the same in both; the outputs are not"),
        (FIRST @ SECOND, "that is the dot product; divide by both lengths"),
        (cosine(RIVER, MONEY), "that is the cosine of river and money themselves"),
        (cosine(FIRST, BANK), 'that is the cosine with the embedding of "bank"; asked is that of the two outputs'),
        ((FIRST - SECOND).norm(), "that is the distance between their ends; asked is the cosine of the angle"),
        (math.degrees(math.acos(cosine(FIRST, SECOND))), "that is the angle in degrees; asked is its cosine"),
    ),
    "differs": CHOICE,
}
X, WORDS = sentence(RIVER), ["the", "river", "bank"]
MONEY_ROW = weights(sentence(MONEY), sentence(MONEY))[2]
SOLUTION = (
    steps(explain(X, X, X, query_tokens=WORDS, key_tokens=WORDS, row=2), "Dot products"),
    f'In "the money bank" the weights of bank are {shown(MONEY_ROW)}, the same as before, and the output is '
    f"{shown(SECOND)}: the numbers have changed places because river and money have.",
    f"cosine = {shown(FIRST @ SECOND)} / ({shown(FIRST.norm())} · {shown(SECOND.norm())}) = "
    f"{shown(cosine(FIRST, SECOND))}: one embedding, two vectors. "
    "In a trained model the weights differ too, and several layers do this one after the other.",
    f"differs: {CHOICE}.",
)
EXERCISE = Exercise(
    3,
    "One word in two sentences",
    Chapter("mini-course", "Impact of attention scores", ("context",)),
    TASK,
    PARTS,
    f'{{"river": {BANK.tolist()}, "money": {BANK.tolist()}, "cosine": 1, "differs": "embedding"}}',
    SOLUTION,
)
