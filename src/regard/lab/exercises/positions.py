"""Exercise 11: attention without positions, rotary positions and ALiBi by hand."""

import math

import torch
from torch import Tensor

from regard.inspection.explain import explain
from regard.lab.exercises.derived import derived
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import one_of
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import shown, softmax, steps, tensor, weights
from regard.spec.biases import ALiBi
from regard.spec.positions import rotary

X, ORDER = tensor([[1, 0], [0, 1], [1, 1]]), one_of([2, 0, 1], [1, 2, 0])
LENGTH = one_of(2, 3, 4)
QUERY, KEY = tensor([LENGTH, 0]), tensor([1, 0])
FIRST, SECOND, FURTHER = one_of(3, 4, 5), one_of(1, 2), one_of(100, 20, 1000)
HEADS, KEYS, AT = 8, 4, 3  # ALiBi: keys at 0 … 3, a query at 3
HEAD = one_of(0, 1)

SLOPE, OTHER = ("½", "¼")[HEAD], ("¼", "½")[HEAD]

TASK = f"""\
Exercise 1 gave three words these outputs, without positions and without a mask:

  Word 1: [0.80, 0.60]     Word 2: [0.60, 0.80]     Word 3: [0.75, 0.75]

  shuffled  the outputs, 3 × 2, if the words come in the order {", ".join(str(word + 1) for word in ORDER)}

Rotary positions turn a vector of two numbers by its position, in radians,
counterclockwise. Take q = {shown(QUERY)} and k = [1, 0]:

  turned    q at position {FIRST}, two numbers
  score     turned q · turned k, q at position {FIRST} and k at position {SECOND}
  further   the same with q at position {FIRST + FURTHER} and k at position {SECOND + FURTHER}

ALiBi adds −slope · |i − j| to the scores. The {("first", "second")[HEAD]} of 8 heads has slope {SLOPE}:

  bias      what it adds for a query at position 3 and keys at 0, 1, 2, 3
  weights   the four weights if all scores were 0 before

  reaches   positions added to the embeddings reach: Q-and-K or Q-K-and-V"""


def turn(vector: Tensor, position: float) -> Tensor:
    """Turned by any angle, as a mistake may have it."""
    cosine, sine = math.cos(position), math.sin(position)
    return tensor([[cosine, -sine], [sine, cosine]]) @ vector


def score(query_at: int, key_at: int) -> float:
    """The dot product of query and key, each turned by its position."""
    return float(rotary(QUERY[None], query_at)[0] @ rotary(KEY[None], key_at)[0])


def outputs(words: Tensor) -> Tensor:
    """What exercise 1 computes, for these words in this order."""
    return weights(words, words) @ words


OUTPUTS, SHUFFLED = outputs(X), outputs(X[ORDER])
TURNED = rotary(QUERY[None], FIRST)[0]
SCORE, AGAIN = score(FIRST, SECOND), score(FIRST + FURTHER, SECOND + FURTHER)
OFFSET = torch.arange(AT, AT - KEYS, -1, dtype=torch.float64)
SLOPES = ALiBi(HEADS).slopes
BIAS = -SLOPES[HEAD] * OFFSET
WEIGHTS = softmax(BIAS)
PLAIN = float(QUERY @ KEY)
TURN = f"[{LENGTH} cos {FIRST}, {LENGTH} sin {FIRST}]"
CHOICE = Choice(
    "Q, K and V are all made from the same row",
    ("Q-and-K", "V = (x + p) · W_V, so what is added to the embedding is handed over too; rotary leaves V alone"),
    ("Q-K-and-V", "all three are projections of x + p; rotary positions and ALiBi leave V alone"),
    right="Q-K-and-V",
)
ANGLES = (
    (PLAIN, "that is q · k without any turning, or turned by degrees: positions are radians here"),
    (LENGTH * math.cos(FIRST + SECOND), "the angles were added; turning both leaves their difference"),
    (LENGTH * math.cos(FIRST), f"k was not turned: it stands at position {SECOND}, not 0"),
    (LENGTH * math.cos(FIRST) * math.cos(SECOND), "only the cosines were multiplied; the second numbers count too"),
)
PARTS = {
    "shuffled": Quantity(
        (SHUFFLED, "does any word care where the others stand?"),
        (OUTPUTS, f"the words have changed places, so their outputs do: row 1 belongs to Word {ORDER[0] + 1} now"),
        (
            OUTPUTS[torch.tensor(ORDER).argsort()],
            f"the other way round: row 1 is the word that comes first, Word {ORDER[0] + 1}",
        ),
        (OUTPUTS[[2, 1, 0]], "that is the order 3, 2, 1"),
        (OUTPUTS[[0, 2, 1]], "that is the order 1, 3, 2"),
        (X[ORDER], "these are the words; their outputs are asked"),
        axes=("word", "dimension"),
    ),
    "turned": Quantity(
        (TURNED, TURN),
        (turn(QUERY, -FIRST), f"turned clockwise; counterclockwise it is {TURN}"),
        (turn(QUERY, math.radians(FIRST)), "taken in degrees; positions are radians here"),
        (turn(QUERY / LENGTH, FIRST), f"turning keeps the length: it is {LENGTH}, not 1"),
        (TURNED.flip(0), f"sine and cosine changed places: {TURN}"),
        (
            turn(QUERY, FIRST - 1),
            f"that is position {FIRST - 1}; the first position is 0, so position {FIRST} turns by {FIRST}",
        ),
        (QUERY + FIRST, "positions are not added here; they turn the vector"),
        axes=("dimension",),
    ),
    "score": Quantity((SCORE, f"the angle between them is {FIRST} − {SECOND} = {FIRST - SECOND}"), *ANGLES),
    "further": Quantity(
        (AGAIN, "what is the angle between them now?"),
        (LENGTH * math.cos(FURTHER + FIRST), "k was not turned"),
        (LENGTH * math.cos(2 * FURTHER + FIRST + SECOND), "the angles were added; only their difference counts"),
        (PLAIN, "that is q · k without any turning"),
        (0, "the score depends on the distance of the two, which is as before, not on how far out they stand"),
        follows=derived("score"),
    ),
    "bias": Quantity(
        (BIAS, f"−{SLOPE} times the distance to position 3"),
        (-BIAS, "the sign: distance is punished, so nothing is positive"),
        (BIAS.flip(0), "the other way round: the key at 3 is at distance 0"),
        (-OFFSET, f"that is slope 1; this head has {SLOPE}"),
        (-SLOPES[HEAD] * (OFFSET + 1), "the distance to itself is 0, not 1"),
        (-SLOPES[1 - HEAD] * OFFSET, f"that is another head, slope {OTHER}"),
        axes=("key",),
    ),
    "weights": Quantity(
        (WEIGHTS, "softmax of the bias"),
        (softmax(-BIAS), "the sign of the bias: the nearest key gets most"),
        (softmax(-OFFSET), f"that is slope 1; this head has {SLOPE}"),
        (torch.full_like(WEIGHTS, 0.25), "that is without ALiBi: scores of 0 everywhere"),
        (BIAS.exp(), "e^x is right, now divide by the sum of the four"),
        axes=("key",),
        follows=derived("bias", "softmax"),
        rows_sum=1.0,
    ),
    "reaches": CHOICE,
}
ZEROS = torch.zeros(1, HEADS, KEYS, 1, dtype=torch.float64)
EXPLAINED = explain(
    ZEROS[:, :, :1],
    ZEROS,
    ZEROS,
    bias=ALiBi(HEADS),
    head=HEAD,
    query_start=AT,
    key_tokens=[f"at {j}" for j in range(KEYS)],
)
ROWS = "\n".join(f"  Word {word + 1}  {shown(row)}" for word, row in zip(ORDER, SHUFFLED, strict=True))
TURNED_KEY = rotary(KEY[None], SECOND)[0]
SOLUTION = (
    f"shuffled:\n{ROWS}\nEvery word finds the same words as before, in another order, and a sum has no order.",
    f"turned: {TURN} = {shown(TURNED)}.",
    f"score: k becomes [cos {SECOND}, sin {SECOND}] = {shown(TURNED_KEY)}; the product is {shown(SCORE)} = "
    f"{LENGTH} cos({FIRST} − {SECOND}). "
    f"further: {LENGTH} cos({FIRST + FURTHER} − {SECOND + FURTHER}) = {shown(AGAIN)}, the same: "
    "distance counts, place does not.",
    steps(EXPLAINED, "Bias", "Weights"),
    f"reaches: {CHOICE}.",
)
EXERCISE = Exercise(
    11,
    "Positions: none, rotary, ALiBi",
    Chapter("important concepts", "6. Positional encoding vs attention", ("positions",)),
    TASK,
    PARTS,
    f'{{"turned": [{LENGTH}, 0], "score": {LENGTH}, "further": 0, "bias": [1.5, 1, 0.5, 0], "reaches": "Q-and-K"}}',
    SOLUTION,
)
