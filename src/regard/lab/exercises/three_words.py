"""Exercise 1: attention on three words by hand, with identity projections, from scores to outputs."""

import math

from torch import Tensor

from regard.inspection.explain import explain, project
from regard.lab.exercises.derived import derived
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import whole
from regard.lab.exercises.questions import Quantity
from regard.lab.exercises.worked import shown, tensor, weights
from regard.spec.masks import Causal
from regard.spec.scores import ScaledDot

X, IDENTITY = tensor(whole([[1, 0], [0, 1], [1, 1]], 0, 2)), tensor([[1, 0], [0, 1]])
D_K, COUNT = 2, 3

TASK = f"""\
Three words have embeddings of dimension 2:

  Word 1: {shown(X[0])}     Word 2: {shown(X[1])}     Word 3: {shown(X[2])}

and the projections are simple: W_Q = W_K = W_V = [[1, 0], [0, 1]].
Compute, to two decimals or more:

  scores    Q Kᵀ, 3 × 3: row i has the scores of query i with every key
  scaled    scores / √d_k, 3 × 3
  weights   softmax of each row of scaled, 3 × 3
  outputs   weights · V, 3 × 2: a new vector for each word"""


def attention(scale: float, **spec: object) -> Tensor:
    """The weights of the three words when dot products are multiplied by `scale`."""
    return weights(X, X, score=ScaledDot(scale), **spec)


LENGTHS = X.norm(dim=1, keepdim=True)
SCORES = X @ X.mT
SCALED = SCORES / math.sqrt(D_K)
WEIGHTS, UNSCALED = attention(1 / math.sqrt(D_K)), attention(1.0)
OUTPUTS = WEIGHTS @ X
PAIR = ("word", "word")
WEIGHT_MISTAKES = (
    (UNSCALED, "softmax of the scores themselves: the division by √d_k is missing"),
    (attention(1 / D_K), "the scores were divided by d_k = 2; it is √d_k = 1.414"),
    (attention(1 / math.sqrt(COUNT)), "the scores were divided by √3, the number of words; d_k is 2"),
    (attention(math.sqrt(D_K)), "the scores were multiplied by √d_k; divide"),
    (
        WEIGHTS.mT,
        "softmax over the wrong axis, or transposed: your columns sum to 1 and it is the rows that must "
        "(the scores are symmetric here, so the two mistakes look the same)",
    ),
    (UNSCALED.mT, "two mistakes: softmax over the wrong axis, and the division by √d_k is missing"),
    (SCALED / SCALED.sum(1, keepdim=True), "divided by the row sums without e^x first: that is not softmax"),
    (SCALED.exp(), "e^x is right, now divide each row by its sum"),
    (SCALED.exp() / SCALED.exp().sum(), "divided by the sum of all nine; each row has a sum of its own"),
    (SCALED, "these are the scaled scores; softmax is missing"),
    (SCORES, "these are the scores; the division by √d_k and softmax are missing"),
    (attention(1 / math.sqrt(D_K), mask=Causal()), "you hid the future; there is no mask here"),
)
PARTS = {
    "scores": Quantity(
        (SCORES, "multiply each row of Q with each row of K and add"),
        (SCALED, "already divided by √d_k; that is the next step, 'scaled'"),
        (SCORES - SCORES.diag().diag(), "a word also meets itself: the diagonal is q_i · k_i, not 0"),
        (SCORES.tril(), "you hid the future; there is no mask here, every word sees every word"),
        (SCORES / (LENGTHS * LENGTHS.mT), "you divided by the lengths of the vectors: that is cosine similarity"),
        (X.mT @ X, "you computed XᵀX, which compares dimensions; words are rows, so it is X Xᵀ"),
        axes=PAIR,
    ),
    "scaled": Quantity(
        (SCALED, "divide every score by √2 = 1.4142"),
        (SCORES, "the division by √d_k is missing"),
        (SCORES / D_K, "divided by d_k = 2; it is √d_k = 1.414"),
        (SCORES / math.sqrt(COUNT), "divided by √3, the number of words; d_k is the dimension of a key, 2"),
        (SCORES * math.sqrt(D_K), "multiplied by √d_k; divide"),
        (WEIGHTS, "these are the weights already; 'scaled' comes before softmax"),
        axes=PAIR,
        follows=derived("scores", ("times", 1 / math.sqrt(D_K))),
    ),
    "weights": Quantity(
        (WEIGHTS, "softmax: e^x of each entry, divided by the sum of its row"),
        *WEIGHT_MISTAKES,
        axes=PAIR,
        follows=derived("scaled", "softmax"),
        rows_sum=1.0,
    ),
    "outputs": Quantity(
        (OUTPUTS, "output i is the sum of the values, each times its weight in row i"),
        *((table @ X, f"the weights behind these outputs are wrong: {text}") for table, text in WEIGHT_MISTAKES),
        (X.mean(0).expand(COUNT, D_K), "this is the plain mean of the values: the weights are missing"),
        (X, "these are the values themselves: multiply by the weights"),
        axes=("word", "dimension of a value"),
        follows=derived("weights", ("matmul", X)),
    ),
}
SOLUTION = (
    explain(project(X, IDENTITY, IDENTITY, IDENTITY), query_tokens=["Word 1", "Word 2", "Word 3"], row=COUNT - 1),
    "The scores are symmetric because W_Q = W_K; the weights of Word 1 → 3 and 3 → 1 are "
    f"{WEIGHTS[0, 2]:.4f} and {WEIGHTS[2, 0]:.4f}.",
)
EXERCISE = Exercise(
    1,
    "Attention on three words, by hand",
    Chapter("mini-course", "Calculating attention scores", ("rows", "symmetry")),
    TASK,
    PARTS,
    '{"weights": [[0.2, 0.3, 0.5], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5]]}',
    SOLUTION,
)
