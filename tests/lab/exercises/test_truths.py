"""The right answers, worked out a second time on paper and in plain arithmetic, without the library."""

from math import cos, e, exp, log, sin, sqrt, tanh

import pytest

from regard.lab.exercises import EXERCISES, exercise
from regard.lab.exercises.questions import Quantity


def soft(*scores: float) -> list[float]:
    powers = [exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


A, B, C = soft(1, 2, 3)
R2 = sqrt(2)
ROW = [1 / (2 * exp(R2) + 1), exp(R2) / (2 * exp(R2) + 1)]  # scores 0, √2, √2
D = 1 / (1 + exp(-R2 / 2))  # two scores that differ by 1/√2
E = 1 / (1 + exp(-R2))
SUM = exp(-3) + exp(-2) + exp(-4) + 1  # scores 2, 3, 1, 5 less 5

TRUTHS: dict[int, dict[str, object]] = {
    1: {"scores": [[1, 0, 1], [0, 1, 1], [1, 1, 2]]},
    3: {"river": [3 * ROW[1], ROW[1]], "money": [ROW[1], 3 * ROW[1]], "cosine": 0.6},
    4: {
        "dot": 10,
        "scaled": 10 / R2,
        "cosine": 10 / (sqrt(5) * 5),
        "general": 6,
        "additive": 2 * tanh(1) - tanh(0.5),
        "concat": 2,
    },
    5: {
        "weights": [A, B, C],
        "shifted": [A, B, C],
        "jacobian": [[A - A * A, -A * B, -A * C], [-A * B, B - B * B, -B * C], [-A * C, -B * C, C - C * C]],
        "second": 1 / (exp(-10) + 1 + exp(10)),
        "slope": (exp(-10) + exp(-20)) / (1 + exp(-10) + exp(-20)) ** 2,
    },
    6: {
        "two": 2,
        "four": 4,
        "scaled": 1,
        "flat": 0.25,
        "spread": 8,
        "double": 64,
        "unscaled": soft(4, 2, 0, -2, -4),
        "weights": soft(2, 1, 0, -1, -2),
    },
    7: {"d_k": [64, 128], "divisor": [8, sqrt(128)], "parameters": 2359296, "w_o": [384, 512], "weights": 1200},
    8: {
        "scores": [[2 / R2, 3 / R2], [3 / R2, 5 / R2]],
        "weights": [[1 - D, D], [1 - E, E]],
        "lse": [log(exp(2 / R2) + exp(3 / R2)), log(exp(3 / R2) + exp(5 / R2))],
        "gap": log(D / (1 - E)),
        "separate": [[1 / R2, 1 / R2], [2 / R2, 3 / R2]],
    },
    9: {"cold": soft(4, 2, 0), "hot": soft(1, 0.5, 0), "ratio": e**2, "zero": [1, 0, 0], "wide": [1 / 3] * 3},
    10: {"dropped": [0.625, 0, 0.25], "sum": 0.875, "output": 4.5, "expected": 6.6, "nothing": 0.008},
    11: {
        "shuffled": [[0.7517, 0.7517], [0.8022, 0.5989], [0.5989, 0.8022]],
        "turned": [2 * cos(3), 2 * sin(3)],
        "score": 2 * cos(2),
        "further": 2 * cos(2),
        "bias": [-1.5, -1, -0.5, 0],
        "weights": soft(-1.5, -1, -0.5, 0),
    },
    12: {
        "heads": [[1, 2], [3, -1]],
        "concat": [1, 2, 3, -1],
        "output": [7, 3, 2],
        "shares": [[1, 2, 3], [6, 1, -1]],
        "shape": [768, 1024],
    },
    13: {"projections": 640, "pairs": 800, "feedforward": 1280, "doubled": [2, 4, 2], "even": 16, "bert": 3072},
    14: {
        "missing": [0.2, 0.8],
        "entry": 0.3,
        "received": [0.9, 1.2, 0.9],
        "total": 3,
        "others": 0.4,
        "scores": 1_000_000,
    },
    15: {"token": 131072, "text": 1, "shared": 4, "with": 100, "without": 5050, "map": 2 * 8192**2},
    16: {
        "first": [3, 1 + exp(-1), (exp(-1) + 2) / (1 + exp(-1))],
        "second": [5, 1 + exp(-4), (3 * exp(-4) + 4) / (1 + exp(-4))],
        "correction": exp(-2),
        "sum": SUM,
        "output": (exp(-3) + 2 * exp(-2) + 3 * exp(-4) + 4) / SUM,
    },
    17: {"convolution": 63, "doubling": 6, "recurrent": 63, "attention": 1, "pairs": 4096, "band": 190},
    18: {
        "entropy": 1.5 * log(2),
        "keys": 2**1.5,
        "hidden": log(2),
        "most": log(20),
        "least": 0,
        "table": [exp(2.56), exp(0.07)],
    },
    19: {
        "full": 36,
        "causal": 21,
        "local": 16,
        "global": 24,
        "long": 2998,
        "layers": 5,
        "weights": [[1, 0, 0], [*soft(1, 0), 0], soft(2, 1, 0)],
    },
    20: {
        "plain": 0.88 / sqrt(1.36 * 1.04),
        "centered": -1,
        "self": 1,
        "average": (0.88 / sqrt(1.36 * 1.04) + 0.76 / sqrt(1.36 * 1.32) + 1.08 / sqrt(1.04 * 1.32)) / 3,
        "pairs": 28,
    },
    21: {
        "self": [7, 7],
        "cross": [7, 6],
        "w_k": [768, 512],
        "output": [7, 512],
        "image": [4096, 77],
        "weights": soft(1 / R2, 0, 1 / R2),
    },
}


def flat(value: object) -> list[float]:
    if isinstance(value, list):
        return [number for each in value for number in flat(each)]
    assert isinstance(value, int | float)
    return [float(value)]


@pytest.mark.parametrize("number", TRUTHS)
def test_the_truth_is_what_paper_says(number: int) -> None:
    parts = {name: part for name, part in exercise(number).parts.items() if isinstance(part, Quantity)}
    if number > 1:
        assert set(TRUTHS[number]) == set(parts)
    for name, value in TRUTHS[number].items():
        loose = 5e-5 if name == "shuffled" else 1e-9
        assert parts[name].truth.flatten().tolist() == pytest.approx(flat(value), abs=loose, rel=1e-7), name


def test_nothing_with_numbers_is_left_out() -> None:
    assert set(TRUTHS) == set(EXERCISES) - {2}
