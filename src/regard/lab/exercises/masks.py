"""Exercise 19: what full, causal and local masks show, and weights under a causal one."""

import torch

from regard.inspection.explain import explain
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import one_of, whole
from regard.lab.exercises.questions import Quantity
from regard.lab.exercises.worked import shown, softmax, steps, tensor
from regard.lab.patterns import layers_needed
from regard.spec.masks import Causal, Full, Global, Window, local
from regard.spec.scores import Dot

N, LONG, WIDTH = one_of(6, 7, 8, 9), one_of(1000, 500, 2000), 3
SCORES = tensor(whole([[0, 1, 2], [1, 0, 1], [2, 1, 0]], 0, 3))
KEYS = torch.eye(3, dtype=torch.float64)
COUNT = {6: "Six", 7: "Seven", 8: "Eight", 9: "Nine"}[N]

TASK = f"""\
{COUNT} tokens, positions 0 to {N - 1}. How many pairs (query, key) are visible

  full     without a mask
  causal   if position i sees only positions ≤ i
  local    in a window of {WIDTH}: a token, the one before and the one after
  global   in that window, if token 0 sees all and is seen by all as well
  long     in a window of {WIDTH} as before, for {LONG:,} tokens

  layers   how many layers of that window it takes until token {N - 1} can know of
           token 0

Three tokens score each other with {shown(SCORES)}, already
scaled; rows are queries. To two decimals or more:

  weights  under a causal mask, 3 × 3, with 0 for hidden pairs"""

CAUSAL = softmax(SCORES, mask=Causal())
OPEN = softmax(SCORES)
TRIANGLE = torch.ones(3, 3, dtype=torch.float64).tril()
FULL, HALF, BAND = Full().pairs(N), Causal().pairs(N), local(WIDTH).pairs(N)
WITH_GLOBAL = (local(WIDTH) | Global([0])).pairs(N)
FAR = local(WIDTH).pairs(LONG)
LAYERS, _ = layers_needed(local(WIDTH), N)
SHORTCUT, _ = layers_needed(local(WIDTH) | Global([0]), N)
PARTS = {
    "full": Quantity(
        (FULL, "each token with each token"),
        (N * (N - 1), "a token sees itself too"),
        (N, "each token sees each: n · n"),
        (N * (N - 1) // 2, "a pair has a direction: who looks at whom"),
    ),
    "causal": Quantity(
        (HALF, f"1 + 2 + … + {N}"),
        (N * (N - 1) // 2, "a token sees itself too: ≤ i, not < i"),
        (FULL // 2, "nearly half: the diagonal belongs to it as a whole, n(n + 1)/2"),
        (FULL, "that is without a mask"),
    ),
    "local": Quantity(
        (BAND, "three a token, less what is missing at the two ends"),
        (N * WIDTH, f"tokens 0 and {N - 1} have one neighbor only"),
        (2 * N - 2, "a token sees itself too"),
        (Window(WIDTH - 1, 0).pairs(N), "that is a window of three that only looks back"),
        (Window(WIDTH, WIDTH).pairs(N), "a window of 3 is 3 keys in all, one to either side; not 3 to either side"),
        (2 * N - 1, "that is a window that looks back by one: the token after is visible too"),
    ),
    "global": Quantity(
        (WITH_GLOBAL, "the window, the rest of row 0 and the rest of column 0"),
        (BAND + 2 * N, "some pairs of row 0 and column 0 are in the window already: count them once"),
        (BAND + N - 2, "both ways: token 0 sees all, and is seen by all"),
        (BAND + 2 * N - 1, "some pairs of row 0 and column 0 are in the window already: count them once"),
        (BAND, "that is the window alone"),
    ),
    "long": Quantity(
        (FAR, "three a token, less what is missing at the two ends"),
        (LONG * WIDTH, "the first and the last token have one neighbor only"),
        (LONG**2, "that is without a mask: the window grows with n, not with n²"),
        (LONG * (LONG + 1) // 2, "that is the causal mask"),
        (LONG * BAND // N, "the ends cost two pairs at any length, not a share of all"),
    ),
    "layers": Quantity(
        (LAYERS, "each layer carries it one place further"),
        (1, f"in one layer token {N - 1} sees only {N - 2} and itself"),
        (2, "a window of 3 reaches one place a layer, not 3"),
        (3, "a window of 3 reaches one place a layer to the left, not two"),
        (N, f"from {N - 1} to 0 there are {N - 1} places"),
    ),
    "weights": Quantity(
        (CAUSAL, "hide what lies above the diagonal, then softmax over what is left of each row"),
        (OPEN, "that is without the mask: row 1 may see position 0 only"),
        (OPEN * TRIANGLE, "hidden after softmax: the rows no longer sum to 1. Hide the scores, before it"),
        (softmax(SCORES * TRIANGLE), "a score of 0 hides nothing, for e^0 = 1; hidden is −∞"),
        (softmax(SCORES, mask=Window(0, None)), "the wrong triangle: position i sees what is at or before it"),
        (
            softmax(SCORES, mask=Causal() & ~Window(0, 0)),
            "a position sees itself too: ≤ i, not < i; otherwise the first one would see nothing",
        ),
        (softmax(SCORES.mT, mask=Causal()).mT, "softmax over the wrong axis: rows must sum to 1"),
        (TRIANGLE / TRIANGLE.sum(1, keepdim=True), "the visible ones alike: their scores are missing"),
        axes=("query", "key"),
        rows_sum=1.0,
    ),
}
NAMES = ["t0", "t1", "t2"]
EXPLAINED = explain(SCORES, KEYS, KEYS, score=Dot(), mask=Causal(), query_tokens=NAMES, key_tokens=NAMES, row=1)
SOLUTION = (
    f"full: {N}² = {FULL}. causal: {N} · {N + 1} / 2 = {HALF}. local: {WIDTH} · {N} − 2 = {BAND}. "
    f"global: {BAND} and {N - 2} more in row 0 and in column 0, {WITH_GLOBAL}. "
    f"long: {WIDTH} · {LONG:,} − 2 = {FAR:,}, where full attention has {LONG**2:,}.",
    f"layers: {LAYERS}, one place each; with the global token any token knows of any other after {SHORTCUT}.",
    steps(EXPLAINED, "Mask", "Weights"),
    f"weights: {shown(CAUSAL)}; hidden pairs have none, and each row sums to 1 over what it sees.",
)
EXERCISE = Exercise(
    19,
    "Full, causal and local masks",
    Chapter("experiment results", "Experiment 2: attention patterns", ("patterns",)),
    TASK,
    PARTS,
    '{"full": 5, "causal": 6, "local": 4, "weights": [[0.09, 0, 0], [0.42, 0.16, 0], [0.67, 0.24, 0.09]]}',
    SOLUTION,
)
