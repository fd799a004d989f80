"""Exercise 18: entropy, and how many keys are in use."""

import math

from torch import Tensor

from regard.inspection.matrix import AttentionMatrix
from regard.lab.exercises.derived import derived
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import one_of
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import shown, tensor

ROW = tensor(one_of([0.5, 0.25, 0.25], [0.6, 0.2, 0.2], [0.8, 0.1, 0.1], [0.4, 0.3, 0.3], [0.7, 0.15, 0.15]))
HALVES = tensor(one_of([0.5, 0.5, 0], [0.9, 0.1, 0], [0.7, 0.3, 0]))
PEAKED, SPLIT = tensor([0.7, 0.1, 0.1, 0.1]), tensor([0.6, 0.4, 0, 0])
KEYS = one_of(20, 10, 50, 16)
SOURCE, *PAIR = one_of(("the course prints", 2.56, 0.07), ("a table has", 2.1, 0.2), ("a table has", 1.9, 0.12))
PRINTED = tensor(PAIR)  # scaled and unscaled entropy at d_k = 512, as the document has them

TASK = f"""\
The entropy of a row of weights is H = −Σ w ln w, in nats, and e^H is how many
keys are in use. Compute, to two decimals or more:

  entropy  of the row {shown(ROW)}
  keys     how many keys it uses
  hidden   the entropy of {shown(HALVES)}, the third key being hidden
  most     the largest entropy that {KEYS} keys allow
  least    the smallest
  table    at d_k = 512 {SOURCE} entropies of {PRINTED[0]:.2f} with scaling and
           {PRINTED[1]:.2f} without, over {KEYS} keys: how many keys are in use? Two numbers
  sharper  which row has the lower entropy: peaked, [0.7, 0.1, 0.1, 0.1], or
           split, [0.6, 0.4, 0, 0]"""


def entropy(row: Tensor) -> float:
    """H of one row, in nats."""
    return float(AttentionMatrix.from_weights(row[None]).entropy()[0])


H, MOST, LEAST = entropy(ROW), entropy(tensor([1 / KEYS] * KEYS)), entropy(tensor([1.0] + [0.0] * (KEYS - 1)))
IN_USE = PRINTED.exp()
CHOICE = Choice(
    "compute both",
    (
        "peaked",
        f"its largest weight is larger, but three more keys share the rest: {entropy(PEAKED):.2f} nats "
        f"against {entropy(SPLIT):.2f}. Entropy looks at all weights, not at the largest",
    ),
    (
        "split",
        f"{entropy(SPLIT):.2f} nats against {entropy(PEAKED):.2f}, although its largest weight is smaller: "
        "entropy looks at all of them",
    ),
    right="split",
)
PARTS = {
    "entropy": Quantity(
        (H, f"−{shown(ROW[0])} · ln {shown(ROW[0])} − 2 · {shown(ROW[1])} · ln {shown(ROW[1])}"),
        (H / math.log(2), "that is in bits, with log₂; asked is in nats, with ln"),
        (H / math.log(10), "that is with log₁₀; asked is with ln"),
        (-float(ROW.log().sum()), "each −ln w counts by its weight w"),
        (-float(ROW.log().mean()), "each −ln w counts by its weight w, not equally"),
        (math.log(3), "that is for three equal weights, the most that three keys allow"),
        (H + float(ROW[2] * ROW[2].log()), f"the third key is missing: there are two of weight {shown(ROW[2])}"),
        (math.exp(H), "that is e^H, the number of keys in use"),
    ),
    "keys": Quantity(
        (math.exp(H), "e^H"),
        (3, "three keys have weight, but not alike: e^H is less than three"),
        (2**H, "2^H is for an entropy in bits; this one is in nats: e^H"),
        (1 / float((ROW**2).sum()), "that is 1/Σw², another count of keys; asked is e^H"),
        (1 / float(ROW.max()), "that is 1 / the largest weight; asked is e^H"),
        (H, "that is H itself"),
        follows=derived("entropy", "exp"),
    ),
    "hidden": Quantity(
        (entropy(HALVES), "a weight of 0 adds nothing: w ln w goes to 0 with w"),
        (entropy(HALVES) / math.log(2), "that is in bits, with log₂; asked is in nats, with ln"),
        (math.log(3), "a hidden key takes no part, and that is the most of three"),
        (0, "0 is for a single key; here are two"),
        (entropy(ROW), "that is the first row"),
    ),
    "most": Quantity(
        (MOST, f"all weights alike: 1/{KEYS}"),
        (1, "entropy is not a share: it runs from 0 to ln n"),
        (KEYS, "that is how many keys are in use, e^H; the entropy is its logarithm"),
        (math.log2(KEYS), "that is in bits; asked is in nats"),
        (math.log10(KEYS), "that is with log₁₀; asked is with ln"),
        (MOST / KEYS, f"that is one key's part; there are {KEYS}"),
    ),
    "least": Quantity(
        (LEAST, "one weight is 1"),
        (1, "that is how many keys are in use, e^0; the entropy is 0"),
        (-1, "entropy is never negative"),
        (math.log(2), "one key can have everything"),
    ),
    "table": Quantity(
        (IN_USE, "e^H of both"),
        (IN_USE.flip(0), "the other way round: scaled comes first"),
        (2**PRINTED, "2^H is for bits; these are nats: e^H"),
        (PRINTED / MOST * KEYS, "H is a logarithm: not its share of the most, but e^H"),
        (PRINTED / MOST, "that is the share of the largest entropy; asked are keys, e^H"),
        axes=("entropy",),
    ),
    "sharper": CHOICE,
}
TERMS = " + ".join(f"{shown(w)} · {shown(-w.log())}" for w in ROW)
SOLUTION = (
    f"entropy: −ln {shown(ROW[0])} = {shown(-ROW[0].log())} and −ln {shown(ROW[1])} = {shown(-ROW[1].log())}, so "
    f"H = {TERMS} = {shown(H)}.",
    f"keys: e^{shown(H)} = {shown(math.exp(H))}, less than 3.",
    f"hidden: {shown(entropy(HALVES))}; a key without weight changes nothing.",
    f"most: ln {KEYS} = {shown(MOST)}, all alike. least: {shown(LEAST)}, all on one.",
    f"table: e^{PRINTED[0]:.2f} = {shown(IN_USE[0])} of {KEYS} keys with scaling, e^{PRINTED[1]:.2f} = "
    f"{shown(IN_USE[1])} without: nearly one-hot.",
    f"sharper: {CHOICE}.",
)
EXERCISE = Exercise(
    18,
    "Entropy, and keys in use",
    Chapter("experiment results", "Experiment 1: why scale by √d_k?", ("scaling",)),
    TASK,
    PARTS,
    '{"entropy": 1.5, "keys": 3, "most": 20, "table": [9.5, 0.5], "sharper": "peaked"}',
    SOLUTION,
)
