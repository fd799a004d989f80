"""Exercise 9: temperature, from cold to hot, and its two limits."""

import math

from regard.lab.exercises.derived import derived
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import distinct, one_of
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import explain_row, shown, softmax, steps, tensor
from regard.spec.normalizers import Hard

SCORES = tensor(distinct([2, 1, 0], 0, 3))
COLD, HOT = one_of(0.5, 0.4, 0.8), 2.0

TASK = f"""\
A query scores three keys with {shown(SCORES)}, already divided by √d_k. Attention
with temperature τ is softmax(scores / τ). Compute, to two decimals or more:

  cold   the weights at τ = {COLD}
  hot    the weights at τ = 2
  ratio  how many times the second weight the first one is, at τ = {COLD}
  zero   the weights in the limit τ → 0
  wide   the weights in the limit τ → ∞
  undo   a model is to be run with τ = 2 and give what it gave with τ = 1: what
         is done to W_Q? double, halve or nothing"""

COLD_W, HOT_W, PLAIN = (softmax(SCORES, temperature=tau) for tau in (COLD, HOT, 1.0))
ZERO, WIDE = softmax(SCORES, normalizer=Hard()), softmax(SCORES, temperature=1e9)
RATIO = float(COLD_W[0] / COLD_W[1])
GAP, DIFFERENCE = float(SCORES[0] - SCORES[1]), f"{shown(SCORES[0])} − {shown(SCORES[1])}"
CHOICE = Choice(
    "scores / τ = (x · W_Q) · k / (√d_k · τ)",
    ("double", "2 · W_Q makes scores twice as large, and τ = 2 halves them: training does the same on its own"),
    ("halve", "that would flatten a second time: scores halved by W_Q and again by τ"),
    ("nothing", "τ = 2 halves every score; something has to double it"),
    right="double",
)
PARTS = {
    "cold": Quantity(
        (COLD_W, f"divide the scores by {COLD}, then softmax"),
        (
            softmax(SCORES, temperature=1 / COLD),
            "the scores were multiplied by τ; divide: a small τ makes differences larger",
        ),
        (PLAIN, "that is τ = 1: the temperature is missing"),
        (softmax(SCORES, temperature=math.sqrt(COLD)), "divided by √τ; the root is for d_k alone"),
        (PLAIN / COLD, "τ acts on the scores, before softmax; dividing weights breaks their sum"),
        (softmax(SCORES, temperature=COLD**2), "divided by τ twice: once is enough"),
        (ZERO, f"cold is not frozen: at τ = {COLD} the best key has {COLD_W.max():.0%}, the limit is τ → 0"),
        axes=("key",),
        rows_sum=1.0,
    ),
    "hot": Quantity(
        (HOT_W, "divide the scores by 2, then softmax"),
        (
            softmax(SCORES, temperature=1 / HOT),
            "the scores were multiplied by τ; divide: a large τ makes differences smaller",
        ),
        (PLAIN, "that is τ = 1: the temperature is missing"),
        (softmax(SCORES, temperature=math.sqrt(HOT)), "divided by √τ; the root is for d_k alone"),
        (PLAIN / HOT, "τ acts on the scores, before softmax; dividing weights breaks their sum"),
        (WIDE, "hot is not even: that is the limit τ → ∞"),
        axes=("key",),
        rows_sum=1.0,
    ),
    "ratio": Quantity(
        (RATIO, "e^(difference of the scores / τ): the sum below the line cancels"),
        (PLAIN[0] / PLAIN[1], f"that is e^({DIFFERENCE}), the ratio at τ = 1"),
        (GAP / COLD, "that is the difference of the scaled scores; weights are their exponentials"),
        (HOT_W[0] / HOT_W[1], "that is the ratio at τ = 2"),
        (1 / RATIO, "upside down: asked is the first over the second"),
        (COLD_W[0] - COLD_W[1], "that is the difference of the weights; asked is their quotient"),
        follows=derived("cold", ("ratio", 0, 1)),
    ),
    "zero": Quantity(
        (ZERO, "what remains when one exponential outgrows all others?"),
        (WIDE, "that is the other limit, τ → ∞"),
        ([0, 0, 0], "the weights of a row sum to 1 at any temperature"),
        (softmax(-SCORES, normalizer=Hard()), "the other way round: the highest score takes everything"),
        (COLD_W, f"that is τ = {COLD}; go on to smaller and smaller τ"),
        axes=("key",),
        rows_sum=1.0,
    ),
    "wide": Quantity(
        (WIDE, "what remains when all scores become 0?"),
        (ZERO, "that is the other limit, τ → 0"),
        ([0, 0, 0], "scores become 0, and e^0 is 1: the weights sum to 1 at any temperature"),
        (HOT_W, "that is τ = 2; go on to larger and larger τ"),
        ([1, 1, 1], "e^0 is 1 for each key, and still to be divided by the sum"),
        axes=("key",),
        rows_sum=1.0,
    ),
    "undo": CHOICE,
}
SOLUTION = (
    steps(explain_row(SCORES, SCORES, temperature=COLD), "Temperature", "Weights"),
    f"τ → 0   {shown(ZERO)}\nτ = {COLD} {shown(COLD_W)}\nτ = 1   {shown(PLAIN)}\nτ = 2   {shown(HOT_W)}\n"
    f"τ → ∞   {shown(WIDE)}",
    f"ratio: e^(({DIFFERENCE}) / {COLD}) = {shown(RATIO)}.",
    f"undo: {CHOICE}.",
)
EXERCISE = Exercise(
    9,
    "Temperature",
    Chapter("important concepts", "4. Softmax temperature", ("temperature",)),
    TASK,
    PARTS,
    '{"cold": [0.51, 0.31, 0.19], "ratio": 2, "undo": "halve"}',
    SOLUTION,
)
