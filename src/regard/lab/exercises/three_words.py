"""Exercise 1: attention on three words by hand, with identity projections, from scores to outputs."""

import math

import torch
from torch import Tensor

from regard.inspection.explain import explain, project
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.quantity import Mistake, Quantity
from regard.lab.maps import weights
from regard.spec.masks import Causal
from regard.spec.scores import ScaledDot

WORDS = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
IDENTITY = ((1.0, 0.0), (0.0, 1.0))
X = torch.tensor(WORDS, dtype=torch.float64)
D_K, COUNT = 2, 3
SCORES = X @ X.mT
SCALED = SCORES / math.sqrt(D_K)

TASK = """\
Three words have embeddings of dimension 2:

  Word 1: [1, 0]     Word 2: [0, 1]     Word 3: [1, 1]

and the projections are simple: W_Q = W_K = W_V = [[1, 0], [0, 1]].
Compute, to two decimals or more:

  scores    Q Kᵀ, 3 × 3: row i has the scores of query i with every key
  scaled    scores / √d_k, 3 × 3
  weights   softmax of each row of scaled, 3 × 3
  outputs   weights · V, 3 × 2: a new vector for each word"""


def attention(scale: float, **spec: object) -> Tensor:
    """The weights of the three words when dot products are multiplied by `scale`."""
    words = X.view(1, 1, COUNT, D_K)
    return weights(words, words, score=ScaledDot(scale), **spec)[0, 0]


WEIGHTS = attention(1 / math.sqrt(D_K))
OUTPUTS = WEIGHTS @ X


def _score_mistakes() -> tuple[Mistake, ...]:
    length = X.norm(dim=1, keepdim=True)
    return (
        Mistake(SCALED, "already divided by √d_k; that is the next step, 'scaled'"),
        Mistake(SCORES - SCORES.diag().diag(), "a word also meets itself: the diagonal is q_i · k_i, not 0"),
        Mistake(SCORES.tril(), "you hid the future; there is no mask here, every word sees every word"),
        Mistake(SCORES / (length * length.mT), "you divided by the lengths of the vectors: that is cosine similarity"),
        Mistake(X.mT @ X, "you computed XᵀX, which compares dimensions; words are rows, so it is X Xᵀ"),
    )


def _scaled_mistakes() -> tuple[Mistake, ...]:
    return (
        Mistake(SCORES, "the division by √d_k is missing"),
        Mistake(SCORES / D_K, "divided by d_k = 2; it is √d_k = 1.414"),
        Mistake(SCORES / math.sqrt(COUNT), "divided by √3, the number of words; d_k is the dimension of a key, 2"),
        Mistake(SCORES * math.sqrt(D_K), "multiplied by √d_k; divide"),
        Mistake(WEIGHTS, "these are the weights already; 'scaled' comes before softmax"),
    )


def _weight_mistakes() -> tuple[Mistake, ...]:
    unscaled = attention(1.0)
    return (
        Mistake(unscaled, "softmax of the scores themselves: the division by √d_k is missing"),
        Mistake(attention(1 / D_K), "the scores were divided by d_k = 2; it is √d_k = 1.414"),
        Mistake(attention(1 / math.sqrt(COUNT)), "the scores were divided by √3, the number of words; d_k is 2"),
        Mistake(attention(math.sqrt(D_K)), "the scores were multiplied by √d_k; divide"),
        Mistake(
            WEIGHTS.mT,
            "softmax over the wrong axis, or transposed: your columns sum to 1 and it is the rows that must "
            "(the scores are symmetric here, so the two mistakes look the same)",
        ),
        Mistake(unscaled.mT, "two mistakes: softmax over the wrong axis, and the division by √d_k is missing"),
        Mistake(SCALED / SCALED.sum(1, keepdim=True), "divided by the row sums without e^x first: that is not softmax"),
        Mistake(SCALED.exp(), "e^x is right, now divide each row by its sum"),
        Mistake(SCALED.exp() / SCALED.exp().sum(), "divided by the sum of all nine; each row has a sum of its own"),
        Mistake(SCALED, "these are the scaled scores; softmax is missing"),
        Mistake(SCORES, "these are the scores; the division by √d_k and softmax are missing"),
        Mistake(attention(1 / math.sqrt(D_K), mask=Causal()), "you hid the future; there is no mask here"),
    )


def _output_mistakes() -> tuple[Mistake, ...]:
    carried = [
        Mistake(mistake.value @ X, f"the weights behind these outputs are wrong: {mistake.text}")
        for mistake in _weight_mistakes()
    ]
    even = X.mean(0).expand(COUNT, D_K)
    return (
        *carried,
        Mistake(even, "this is the plain mean of the values: the weights are missing"),
        Mistake(X, "these are the values themselves: multiply by the weights"),
    )


PAIR = ("word", "word")
QUANTITIES = (
    Quantity("scores", PAIR, "multiply each row of Q with each row of K and add", SCORES, _score_mistakes()),
    Quantity(
        "scaled",
        PAIR,
        "divide every score by √2 = 1.4142",
        SCALED,
        _scaled_mistakes(),
        ("scores", lambda scores: scores / math.sqrt(D_K)),
    ),
    Quantity(
        "weights",
        PAIR,
        "softmax: e^x of each entry, divided by the sum of its row",
        WEIGHTS,
        _weight_mistakes(),
        ("scaled", lambda scaled: scaled.softmax(1)),
        rows_sum=1.0,
    ),
    Quantity(
        "outputs",
        ("word", "dimension of a value"),
        "output i is the sum of the values, each times its weight in row i",
        OUTPUTS,
        _output_mistakes(),
        ("weights", lambda table: table @ X),
    ),
)


def solution(width: int) -> str:
    """Every step, with the third word worked out."""
    words = [f"Word {number}" for number in range(1, COUNT + 1)]
    steps = explain(project(WORDS, IDENTITY, IDENTITY, IDENTITY), query_tokens=words, row=COUNT - 1).text(width)
    mirrored = f"{WEIGHTS[0, 2]:.4f} and {WEIGHTS[2, 0]:.4f}"
    return f"{steps}\nThe scores are symmetric because W_Q = W_K; the weights of Word 1 → 3 and 3 → 1 are {mirrored}."


EXERCISE = Exercise(
    1,
    "Attention on three words, by hand",
    Chapter("mini-course", "Calculating attention scores", ("rows", "symmetry")),
    TASK,
    QUANTITIES,
    '{"weights": [[0.2, 0.3, 0.5], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5]]}',
    solution,
)
