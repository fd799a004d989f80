"""Exercise 17: how far convolution, recurrence and attention reach, and in how many steps."""

import itertools
from collections.abc import Iterable

import torch

from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import one_of
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.patterns import after, visible
from regard.spec.masks import Dilated, Full, Mask, Window, local

N, WIDTH = one_of(64, 32, 128, 50, 100), 3
DISTANCE = N - 1

TASK = f"""\
The last of {N} tokens depends on the first, {DISTANCE} places before it. Compute:

  convolution  how many layers of width {WIDTH} (a token and its two neighbors) it
               takes until the first token can reach the last
  doubling     the same if layer l looks 2^l places to either side and at the
               token itself, l = 0, 1, 2, …
  recurrent    how many steps a recurrent net takes from the first token to the
               last, one token a step
  attention    how many layers of full attention it takes
  pairs        how many pairs one such layer computes
  band         how many pairs a layer computes if each token looks at itself and
               its two neighbors alone (at the ends there is one neighbor)
  waits        which of them must wait for the token before: convolution,
               recurrence or attention"""


def layers(masks: Iterable[Mask]) -> int:
    """Layers until the first token has reached the last, passed on along the masks themselves."""
    known = torch.eye(N, dtype=torch.bool)
    for count, mask in enumerate(masks, 1):
        known = after(visible(mask, N), known)
        if known[-1, 0]:
            return count
    raise ValueError("the last token was never reached")


def steps(count: int) -> str:
    """1 + 2 + 4 + … and its sum."""
    return f"{' + '.join(str(2**level) for level in range(count))} = {2**count - 1}"


CONVOLUTION = layers(itertools.repeat(local(WIDTH)))
DOUBLING = layers(Dilated(WIDTH, 2**level) for level in itertools.count())
RECURRENT = layers(itertools.repeat(Window(1, 0)))
ATTENTION = layers(itertools.repeat(Full()))
PAIRS, BAND = Full().pairs(N), local(WIDTH).pairs(N)
CHOICE = Choice(
    "which needs the result for token 5 before it can begin with token 6?",
    ("convolution", "it reads the layer below, which is complete: all tokens of a layer at once"),
    ("recurrence", "the state of token 6 is made from that of token 5, so the steps follow one another"),
    ("attention", "it reads the layer below, which is complete: all tokens of a layer at once"),
    right="recurrence",
)
PARTS = {
    "convolution": Quantity(
        (CONVOLUTION, "each layer carries it one place further"),
        (DISTANCE // WIDTH, f"width {WIDTH} is one place to either side: a layer carries it 1 further, not {WIDTH}"),
        (DISTANCE // 2 + 1, "one neighbor on the left and one on the right: a layer carries it 1 to the right, not 2"),
        (N, f"from the first to the last of {N} there are {DISTANCE} places"),
        (DOUBLING, "that is with doubled steps, the next part"),
        (1, "one layer sees only the neighbors"),
    ),
    "doubling": Quantity(
        (DOUBLING, f"1 + 2 + 4 + … until it is {DISTANCE} or more"),
        (DOUBLING - 1, f"{steps(DOUBLING - 1)} is not yet {DISTANCE}"),
        (DOUBLING + 1, f"{steps(DOUBLING)} is enough for {DISTANCE}"),
        (CONVOLUTION, "that is with steps of one, the part before"),
        (DISTANCE // 2 + 1, "the steps double, so their number is a logarithm"),
    ),
    "recurrent": Quantity(
        (RECURRENT, "one token a step"),
        (N, f"from the first to the last of {N} there are {DISTANCE} steps"),
        (1, "its state has to pass through every token between"),
        (DOUBLING, "nothing is skipped: one token a step"),
    ),
    "attention": Quantity(
        (ATTENTION, "the last token sees every token"),
        (DISTANCE, "distance is no matter: the last token looks at the first directly"),
        (DOUBLING, "distance is no matter: the last token looks at the first directly"),
        (2, "one is enough: the last token looks at the first directly"),
        (0, "some layer has to look"),
    ),
    "pairs": Quantity(
        (PAIRS, "each token with each token"),
        (N, "each token looks at each: n · n"),
        (N * (N + 1) // 2, "that is with a causal mask"),
        (N * DISTANCE, "a token looks at itself too"),
        (BAND, "that is the band"),
    ),
    "band": Quantity(
        (BAND, "three a token, less what is missing at the two ends"),
        (N * WIDTH, "the first and the last token have one neighbor only"),
        (N * WIDTH - 1, "both ends lack a neighbor"),
        (N * 2 - 2, "a token looks at itself too"),
        (PAIRS, "that is full attention"),
    ),
    "waits": CHOICE,
}
SOLUTION = (
    "Counted by passing the first token on, layer by layer, along `masks.local(3)`,\n"
    "`masks.Dilated(3, 2^l)`, `masks.Window(1, 0)` and `masks.Full()`:",
    f"convolution  {CONVOLUTION} layers, one place each\n"
    f"doubling     {DOUBLING} layers: {steps(DOUBLING)}\n"
    f"recurrent    {RECURRENT} steps, one after the other\n"
    f"attention    {ATTENTION} layer\n"
    f"pairs        {N}² = {PAIRS:,}\n"
    f"band         {WIDTH} · {N} − 2 = {BAND}",
    f"waits: {CHOICE}.",
    "Reach in one layer is paid with n² pairs; a band is cheap and takes many layers. Another difference is "
    "who decides: a convolution has the same weights for every text, attention makes them anew.",
)
EXERCISE = Exercise(
    17,
    "How far convolution, recurrence and attention reach",
    Chapter("experiment results", "The core problem", ("why", "patterns")),
    TASK,
    PARTS,
    '{"convolution": 3, "doubling": 3, "recurrent": 1, "attention": 63, "waits": "attention"}',
    SOLUTION,
)
