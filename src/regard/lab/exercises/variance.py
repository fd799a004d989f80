"""Exercise 6: why scores are divided by √d_k, with coins: every case can be counted."""

import itertools
import math

import torch
from torch import Tensor

from regard.inspection.explain import explain
from regard.inspection.records import Table
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import one_of, shuffled
from regard.lab.exercises.questions import Quantity
from regard.lab.exercises.worked import shown, steps, tensor, weights
from regard.spec.scores import Dot, ScaledDot

D_K = 4
QUERY = torch.ones(1, D_K, dtype=torch.float64)
COMMON = shuffled([4, 3, 2, 1, 0])  # signs that each key has in common with the query
KEYS = torch.stack([torch.arange(D_K) >= D_K - common for common in COMMON]).double() * 2 - 1
WIDE, SIZE = one_of(64, 16, 36, 100, 144, 256), one_of(2, 3, 4)
SCORES = shown(KEYS.sum(1)).strip("[]")
HALF_SCORES = shown(KEYS.sum(1) / 2).strip("[]")

TASK = f"""\
Every number of a query and of a key is +1 or −1, by the toss of a coin: mean 0,
variance 1, all independent. Each product q_i k_i is then +1 or −1 as well, and
all cases can be counted. Compute:

  two       the variance of q · k for d_k = 2: four cases, equally likely
  four      the variance of q · k for d_k = 4
  scaled    the variance of q · k / √d_k for d_k = 4
  flat      the variance of q · k / d_k for d_k = 4
  spread    the standard deviation of q · k for d_k = {WIDE}
  double    the variance of q · k for d_k = 4 if the numbers are +{SIZE} or −{SIZE}

A query [1, 1, 1, 1] meets five keys, with {", ".join(map(str, COMMON[:4]))} and {COMMON[4]} of its signs in
common. Compute to two decimals or more:

  unscaled  the five weights, softmax of q · k
  weights   the five weights, softmax of q · k / √d_k"""


def variance(width: int, size: float = 1.0, *, less: int = 0) -> float:
    """Var(q · k) over all signs of q, for a k of ones: its own signs only relabel the cases."""
    signs = size * tensor(list(itertools.product((1.0, -1.0), repeat=width)))
    products = signs @ torch.full((width,), size, dtype=torch.float64)
    return float(products.var(correction=less))


def attention(score: Dot | ScaledDot) -> Tensor:
    """The five weights."""
    return weights(QUERY, KEYS, score=score)[0]


TWO, FOUR, DOUBLE = variance(2), variance(D_K), variance(D_K, SIZE)
UNSCALED, SCALED, FLAT = attention(Dot()), attention(ScaledDot()), attention(ScaledDot(1 / D_K))
SOFTMAX = (
    (attention(ScaledDot(-1.0)), "the other way round: the more signs in common, the higher the score"),
    (FLAT, "divided by d_k = 4, which is too much: 'flat' shows what is left of the variance"),
    (torch.full_like(UNSCALED, 0.2), f"the scores differ, so the weights do: {SCORES} before any division"),
)
PARTS = {
    "two": Quantity(
        (TWO, "the four cases are 1+1, 1−1, −1+1 and −1−1; the variance is the mean of their squares"),
        (1, "that is the variance of one product; there are two, and variances of independent numbers add up"),
        (math.sqrt(2), "that is the standard deviation; the variance is its square"),
        (0, "that is the mean of q · k; the variance is the mean of its square"),
        (4, "that is the square of the two extreme cases alone; 1−1 and −1+1 give 0 and count too"),
        (variance(2, less=1), "divided by n − 1: these are all cases there are, not a sample of them"),
    ),
    "four": Quantity(
        (FOUR, "four independent products of variance 1"),
        (D_K**2, "variances add up; you multiplied, or squared the largest score"),
        (math.sqrt(D_K), "that is the standard deviation; the variance is its square"),
        (1, "that is the variance of one product; there are four"),
        (0, "that is the mean of q · k; the variance is the mean of its square"),
        (2 * D_K, "the variances of q and k do not both count: it is the product q_i k_i that has variance 1"),
        (variance(D_K, less=1), "divided by n − 1: these are all cases there are, not a sample of them"),
    ),
    "scaled": Quantity(
        (FOUR / math.sqrt(D_K) ** 2, "dividing by a number divides the variance by its square"),
        (FOUR / math.sqrt(D_K), "dividing by √d_k divides the variance by its square, d_k"),
        (FOUR, "the division is missing"),
        (1 / D_K, "that is what dividing by d_k gives"),
    ),
    "flat": Quantity(
        (FOUR / D_K**2, "dividing by a number divides the variance by its square"),
        (FOUR / D_K, "dividing by d_k divides the variance by its square, d_k²"),
        (FOUR, "the division is missing"),
        (0, "small, but not zero"),
    ),
    "spread": Quantity(
        (math.sqrt(WIDE), "the root of the variance"),
        (WIDE, "that is the variance; the standard deviation is its root"),
        (2 * math.sqrt(WIDE), "that is two standard deviations, within which 95% of the scores lie"),
        (1, "that is what remains after dividing by √d_k"),
    ),
    "double": Quantity(
        (DOUBLE, f"each product is now +{SIZE**2} or −{SIZE**2}"),
        (FOUR, "independence alone does not give d_k: the numbers must have variance 1 too"),
        (SIZE * FOUR, f"each product is ±{SIZE**2}: its variance is {SIZE**4}, not {SIZE}"),
        (SIZE**2 * FOUR, f"q and k are both {SIZE} times as large: the product is ±{SIZE**2}, its variance {SIZE**4}"),
    ),
    "unscaled": Quantity(
        (UNSCALED, f"the scores are {SCORES}"),
        (SCALED, "already divided by √d_k = 2; that is the last part"),
        *SOFTMAX,
        axes=("key",),
        rows_sum=1.0,
    ),
    "weights": Quantity(
        (SCALED, f"the scores are {HALF_SCORES}"),
        (UNSCALED, "the division by √d_k = 2 is missing"),
        *SOFTMAX,
        axes=("key",),
        rows_sum=1.0,
    ),
}
WAYS = [(D_K - 2 * minus, math.comb(D_K, minus)) for minus in range(D_K + 1)]  # a score, and how many cases have it
TOTAL = sum(count * score**2 for score, count in WAYS)
COUNTED = [(score, f"{count} of {2**D_K}", score**2) for score, count in WAYS]
ALIKE = [f"{common} alike" for common in COMMON]
EXPLAINED = explain(QUERY, KEYS, KEYS, query_tokens=["q"], key_tokens=ALIKE)
SOLUTION = (
    f"two: 2, 0, 0 and −2, squares 4, 0, 0 and 4, mean {shown(TWO)}.",
    Table(("q · k", "cases", "square"), COUNTED, "d_k = 4"),
    f"four: the mean of the squares is {TOTAL} / {2**D_K} = {shown(FOUR)}, which is d_k: variances of "
    "independent products add up.",
    f"scaled: {shown(FOUR)} / (√4)² = {shown(FOUR / D_K)}, for any d_k. flat: {shown(FOUR)} / 4² = "
    f"{shown(FOUR / D_K**2)}, smaller the larger d_k. spread: √{WIDE} = {shown(math.sqrt(WIDE))}.",
    f"double: 4 · {SIZE**4} = {shown(DOUBLE)}: without unit variance Var(q · k) is not d_k.",
    steps(EXPLAINED, "Dot products", "Weights"),
    f"Unscaled they would be {shown(UNSCALED)}: the best key takes {shown(UNSCALED.max())} instead of "
    f"{shown(SCALED.max())}, and at d_k = 512 nearly everything.",
)
EXERCISE = Exercise(
    6,
    "Why √d_k: counting coins",
    Chapter("important concepts", "1. Why divide by √d_k?", ("variance", "scaling")),
    TASK,
    PARTS,
    '{"two": 1, "four": 16, "scaled": 2, "spread": 1, "weights": [0.2, 0.2, 0.2, 0.2, 0.2]}',
    SOLUTION,
)
