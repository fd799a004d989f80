"""symmetry: what queries and keys lose when they share one projection.

With W_Q = W_K the scores are symmetric. The weights are not, because each row has its own denominator:
ln w_ij − ln w_ji = lse_j − lse_i, so that e^(lse_i) · w_ij = e^(lse_j) · w_ji. Such weights can prefer one direction
along a line, where the denominators change monotonically, but not round a circle: there the logarithms of
w(to the next) / w(to the one before) add up to 0, and if all other links lead onward, one must lead back.
"""

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.inspection.capture import capture
from regard.inspection.records import Bars, Cell, Estimate, Grid, Line, Lines, Panel, Picture, SignedGrid, Table
from regard.lab.maps import attend_statistics, normal, weights
from regard.lab.report import (
    CONCEPTS,
    Claim,
    DecisionRule,
    Evidence,
    Report,
    Takeaway,
    Timing,
    above,
    below,
    compared,
    near,
    quoted,
)
from regard.lab.setting import Setting
from regard.lab.statistics import curve, mean, number, positive, share, training_time
from regard.lab.tasks.relations import Relating, right
from regard.lab.training import Trained, train

TOKENS, WIDTH = 6, 16
EXACT = 1e-12  # what float64 leaves of zero here
LEARNED = 0.95  # a share of right answers that is called learned
ITEMS, PAYLOADS, TEXTS = 8, 8, 512
FREEDOM_WIDTH = 12
OWN, SHARED, SEVERAL = "W_Q and W_K", "one W for both", "one W, 4 heads"
VARIANTS = {OWN: (False, 1), SHARED: (True, 1), SEVERAL: (True, 4)}
QUESTIONS = {
    "partner": "its partner (mutual)",
    "previous": "the one before it (a line)",
    "next": "the next type (a circle)",
}


@dataclass(frozen=True)
class SymmetryDraws:
    """Random self-attention, (draw, query, key) each, and the lse of each row, (draw, query).

    `rounding` bounds what float64 may leave of s_ij − s_ji where it is 0: no processor promises to add the products of
    a pair and of its mirror image in the same order.
    """

    scores: Tensor
    weights: Tensor
    lse: Tensor
    rounding: Tensor

    @property
    def symmetric(self) -> bool:
        """Whether no score differs from its mirror image by more than rounding."""
        return bool(((self.scores - self.scores.mT).abs() <= self.rounding).all())

    def apart(self) -> tuple[Tensor, Tensor, Tensor]:
        """At most, of each draw: |s_ij − s_ji|, |w_ij − w_ji|, and what lse_j − lse_i leaves of ln w_ij − ln w_ji."""
        logs = self.weights.log()
        left = logs - logs.mT - (self.lse.unsqueeze(-2) - self.lse.unsqueeze(-1))
        differences = (self.scores - self.scores.mT, self.weights - self.weights.mT, left)
        return tuple(each.abs().amax((1, 2)) for each in differences)  # type: ignore[return-value]


def random_projections(generator: torch.Generator, draws: int, shared: bool) -> tuple[Tensor, Tensor]:
    """Queries and keys of random tokens, (draw, 1, token, width); `shared` uses one projection for both."""
    tokens = normal(generator, draws, 1, TOKENS, WIDTH)
    w_query, w_key = (normal(generator, draws, 1, WIDTH, WIDTH) / math.sqrt(WIDTH) for _ in range(2))
    query = tokens @ w_query
    return query, query if shared else tokens @ w_key


def scaled_dot(query: Tensor, key: Tensor) -> Tensor:
    """q · k / √d of all pairs."""
    return query @ key.mT / math.sqrt(WIDTH)


def random_maps(generator: torch.Generator, draws: int, shared: bool) -> SymmetryDraws:
    """Scores, weights and lse of random projections."""
    query, key = random_projections(generator, draws, shared)
    _, statistics = attend_statistics(query, key, key, "lse")
    scores = scaled_dot(query, key)
    # a sum of n products, in any order, is off by at most n · ε/2 of the sum of their sizes (and ε²); division adds one
    sizes = scaled_dot(query.abs(), key.abs())
    rounding = (WIDTH + 2) * torch.finfo(scores.dtype).eps * torch.maximum(sizes, sizes.mT)
    return SymmetryDraws(scores[:, 0], weights(query, key)[:, 0], statistics["lse"][:, 0], rounding[:, 0])


def circle(model: nn.Module, types: int) -> Tensor:
    """The weights of a model's first head, (query, key), over items in the order of their types; all payloads are 0."""
    order = torch.arange(types).unsqueeze(0)
    with torch.no_grad():
        captured = capture(copy.deepcopy(model).double(), order, torch.zeros_like(order))
    return captured[0, 0].dense()[0]


def links(weights: Tensor) -> Tensor:
    """ln(weight on the next type / weight on the one before) in a circle, one number for each type."""
    logs, types = weights.log(), torch.arange(len(weights))
    return logs[types, (types + 1) % len(types)] - logs[types, (types - 1) % len(types)]


def freedom(width: int, heads: int, generator: torch.Generator) -> tuple[int, int]:
    """In how many directions scores and values of a layer can move: with W_Q, W_K, W_V, and with one W for all three.

    It is the rank of their derivative with respect to these matrices, each width × width. W_O is fixed.
    """

    def scores_and_values(matrices: Tensor) -> Tensor:
        query, key, value = (matrices[index % len(matrices)] for index in range(3))
        parts = torch.arange(width).split(width // heads)
        return torch.cat([*((query[:, part] @ key[:, part].T).flatten() for part in parts), value.flatten()])

    jacobian = torch.func.jacrev(scores_and_values)
    three, one = (
        int(torch.linalg.matrix_rank(jacobian(normal(generator, count, width, width)).flatten(1))) for count in (3, 1)
    )
    return three, one


@dataclass(frozen=True)
class SymmetryTraining:
    """One training: the share of right answers to new texts, and the weights of its head over a circle."""

    right: float
    circle: Tensor
    trained: Trained


Runs = dict[tuple[str, int, str], list[SymmetryTraining]]  # by question, number of types, variant
RandomMaps = dict[str, SymmetryDraws]


def run(setting: Setting) -> Report:
    """Run the experiment."""
    draws, repetitions = setting.choose(full=1000, quick=100), setting.choose(full=5, quick=3)
    generator = setting.generator()
    random = {name: random_maps(generator, draws, shared) for name, shared in ((OWN, False), (SHARED, True))}
    seeds = setting.seeds(repetitions, generator)
    sizes = setting.choose(full=(3, 4, 6, 8, 12), quick=(3, ITEMS))
    questions = setting.choose(full=tuple(QUESTIONS), quick=("previous", "next"))
    variants = [
        (question, ITEMS, name) for question in questions for name in VARIANTS if question == "next" or name != SEVERAL
    ]
    variants += [("next", size, name) for size in sizes for name in (OWN, SHARED) if size != ITEMS]
    runs = {variant: [measured(setting, seed, *variant) for seed in seeds] for variant in variants}
    free = {heads: freedom(FREEDOM_WIDTH, heads, setting.generator()) for heads in (1, 2, 3, 4)}
    return Report(
        "symmetry",
        "Is attention symmetric when queries and keys share one projection, and can it still tell directions?",
        (learned_table(runs), random_table(random), circle_table(runs, sizes), freedom_table(free)),
        pictures(runs, sizes, random[SHARED]),
        finding(random, runs),
        compared(*claims(random, runs, free)),
        setting.record(draws, trainings_of_each_kind=repetitions, steps=training_task(setting, 0, *variants[0]).steps),
        Timing((training_time(each.trained for group in runs.values() for each in group),)),
        why="Queries and keys have matrices of their own in every model; this shows what is lost if they share one.",
        setup="With one matrix W for both, the score of i for j is that of j for i. Random tokens show what that means "
        f"for scores and for weights. Then layers are trained to go from each of {ITEMS} kinds of items to the next, "
        "the last one back to the first (a circle), and from each item to the one before it in the text (a line).",
        takeaway=takeaway(random, runs),
    )


def training_task(setting: Setting, seed: int, question: str, types: int, variant: str) -> Relating:
    """What is trained: items of which each wants the payload of another."""
    shared, heads = VARIANTS[variant]
    return Relating(
        seed=seed,
        steps=setting.choose(full=160, quick=80),
        rate=2e-2,
        rise=0.1,
        looks=5,
        questions=(question,),
        types=types,
        copies=1,
        payloads=PAYLOADS,
        placed=question == "previous",
        width=32,
        heads=heads,
        shared=shared,
        joined=True,
        reading="linear",
        batch=setting.choose(full=64, quick=32),
    )


def measured(setting: Setting, seed: int, question: str, types: int, variant: str) -> SymmetryTraining:
    """One training and its measurements."""
    task = training_task(setting, seed, question, types, variant)
    trained = train(task)
    texts = task.texts(TEXTS, torch.Generator().manual_seed(seed + 2))
    return SymmetryTraining(right(task, trained.model, texts)[question], circle(trained.model, types), trained)


def rights(runs: Runs, question: str, types: int, variant: str) -> Estimate:
    """The share of right answers."""
    return share([each.right for each in runs[question, types, variant]])


def learned_table(runs: Runs) -> Table:
    """What each variant learns."""
    rows: list[list[Cell]] = []
    for question, says in QUESTIONS.items():
        if (question, ITEMS, OWN) in runs:
            keys = [(question, ITEMS, name) for name in VARIANTS]
            rows.append([says, *(rights(runs, *key) if key in runs else "" for key in keys)])
    repetitions = len(runs["next", ITEMS, OWN])
    title = (
        f"Trained: {ITEMS} items, each wants what another holds (guessing: {1 / PAYLOADS:.3f}); share of right answers "
        f"to {TEXTS} new texts, mean and 95% interval over {repetitions} trainings"
    )
    return Table(("each item wants what is held by", *VARIANTS), rows, title)


def random_table(random: RandomMaps) -> Table:
    """The largest difference between a pair and its mirror image."""
    rows: list[tuple[Cell, ...]] = [(name, *map(mean, maps.apart())) for name, maps in random.items()]
    columns = ("random", "max |s_ij − s_ji|", "max |w_ij − w_ji|", "max |ln w_ij − ln w_ji − (lse_j − lse_i)|")
    title = f"Random self-attention of {TOKENS} tokens: scores s and weights w of a pair and its mirror image"
    return Table(columns, rows, title)


def circle_table(runs: Runs, sizes: tuple[int, ...]) -> Table:
    """Circles of several sizes."""
    rows: list[tuple[Cell, ...]] = []
    for size in sizes:
        right = [rights(runs, "next", size, name) for name in (OWN, SHARED)]
        own, shared = ([links(each.circle) for each in runs["next", size, name]] for name in (OWN, SHARED))
        back = number([float((each < 0).sum()) for each in shared])
        sums = [number([float(each.sum()) for each in group]) for group in (own, shared)]
        rows.append((size, *right, one_lost(size), back, *sums))
    columns = (
        *("circle of", "right, two W", "right, one W", "if one link is lost", "links that lead back, one W"),
        *("Σ ln(w next / w before), two W", "the same, one W"),
    )
    return Table(columns, rows, "Trained: each item wants what the next type holds, and the last wants the first's")


def one_lost(size: int) -> float:
    """The share of right answers if one type of a circle can only guess."""
    return (size - 1 + 1 / PAYLOADS) / size


def freedom_table(free: dict[int, tuple[int, int]]) -> Table:
    """Parameters, and directions in which scores and values can move."""
    rows = [
        (heads, 3 * FREEDOM_WIDTH**2, three, FREEDOM_WIDTH**2, one, f"{three / one:.2f}×")
        for heads, (three, one) in free.items()
    ]
    columns = ("heads", "numbers in W_Q, W_K, W_V", "free", "numbers in one W", "free", "ratio of free ones")
    title = f"d_model = {FREEDOM_WIDTH}: in how many directions scores and values can move (rank of the derivative)"
    return Table(columns, rows, title)


def pictures(runs: Runs, sizes: tuple[int, ...], maps: SymmetryDraws) -> tuple[Picture, ...]:
    """Trained weights round the circle; right answers against its size, and its links; the first random draw."""
    trained = {name: runs["next", ITEMS, name][0].circle for name in (OWN, SHARED)}
    grids = [Grid(each.tolist(), title=name, limits=(0.0, 1.0)) for name, each in trained.items()]
    lines = [curve(name, sizes, [rights(runs, "next", size, name) for size in sizes]) for name in (OWN, SHARED)]
    lines.append(Line("one link lost", sizes, [one_lost(size) for size in sizes]))
    labels = [f"{place} → {(place + 1) % ITEMS}" for place in range(ITEMS)]
    series = {name: links(each).tolist() for name, each in trained.items()}
    circles = (
        Lines(lines, "types in the circle", "share of right answers", "Round a circle"),
        Bars(labels, series, "ln(w next / w before)", f"Links of a circle of {ITEMS}"),
    )
    scores = SignedGrid(maps.scores[0].tolist(), title="scores: symmetric")
    weights = Grid(maps.weights[0].tolist(), title="weights: not", limits=(0.0, float(maps.weights[0].max())))
    return (
        Panel(grids, "Trained: type i looks for type i + 1, the last for 0"),
        Panel(circles),
        Panel((scores, weights), "Random tokens, one projection for queries and keys"),
    )


def claims(random: RandomMaps, runs: Runs, free: dict[int, tuple[int, int]]) -> tuple[Claim, ...]:
    """What is said of separate and of shared projections."""
    scores, table, _ = random[SHARED].apart()
    own, circles, several = (rights(runs, "next", ITEMS, name) for name in (OWN, SHARED, SEVERAL))
    line = rights(runs, "previous", ITEMS, SHARED)
    ratios = [three / one for three, one in free.values()]
    asymmetric = quoted(CONCEPTS, "A can attend to B without B equally attending to A")
    symmetric = quoted(CONCEPTS, "If Q = K (same projection), attention would be **symmetric**")
    equal = quoted(CONCEPTS, "Attention(A→B) = Attention(B→A)")
    directional = quoted(CONCEPTS, "Cannot model directional relationships")
    cannot = DecisionRule(((2 / PAYLOADS, "confirmed"), (LEARNED, "partly"), (math.inf, "corrected")))
    right = "share of right answers with one W for both"
    lost = f"with one link lost it would be {one_lost(ITEMS):.3f}"
    rounding = "up to rounding the scores are symmetric" if random[SHARED].symmetric else ""
    capacity = quoted(CONCEPTS, "3× the learning capacity")
    freedom = "3 × the numbers, (3 − 1/h) × the directions in which scores and values can move"
    return (
        Claim(asymmetric, f"share of right answers round a circle of {ITEMS}, two projections", own, above(LEARNED)),
        Claim(symmetric, "max |s_ij − s_ji| of the scores, one W", float(scores.max()), below(EXACT), rounding),
        Claim(
            equal,
            "max |w_ij − w_ji| of the weights, one W",
            positive(table),
            below(EXACT),
            "ln w differs by lse_j − lse_i",
        ),
        Claim(directional, f"{right}, along a line", line, cannot),
        Claim(directional, f"{right}, round a circle of {ITEMS}", circles, cannot, lost),
        Claim(directional, f"{right}, round the circle, 4 heads", several, cannot),
        Claim(capacity, "free directions, three matrices over one, 1 head", min(ratios), near(3, 0.005), freedom),
    )


def takeaway(random: RandomMaps, runs: Runs) -> Takeaway:
    """What a shared projection loses."""
    scores, table, _ = random[SHARED].apart()
    own, circles = (rights(runs, "next", ITEMS, name) for name in (OWN, SHARED))
    return Takeaway(
        "One matrix for queries and keys makes scores symmetric, not weights; what it cannot learn in one head is to "
        "go round in a circle.",
        "Here one matrix for both does not behave so.",
        (
            Evidence("max |s_ij − s_ji| of the scores, one W", float(scores.max()), below(EXACT)),
            Evidence("max |w_ij − w_ji| of the weights, one W", positive(table), above(EXACT)),
            Evidence("share of right answers round the circle, two projections", own, above(LEARNED)),
            Evidence("share of right answers round the circle, one W", circles, below(LEARNED)),
        ),
    )


def finding(random: RandomMaps, runs: Runs) -> str:
    """One sentence, from the numbers."""
    scores, table, _ = random[SHARED].apart()
    line, circles, own = (
        rights(runs, question, ITEMS, name).mean
        for question, name in (("previous", SHARED), ("next", SHARED), ("next", OWN))
    )
    total = max(abs(float(links(each.circle).sum())) for each in runs["next", ITEMS, SHARED])
    return (
        f"With one projection a pair and its mirror image differ by at most {float(scores.max()):.1g} in the scores "
        f"{'(rounding) ' if random[SHARED].symmetric else ''}"
        f"and by {mean(table).mean:.2f} in the weights; trained, such a layer gives {line:.1%} right answers along a "
        f"line and {circles:.1%} round a circle of {ITEMS} (two projections: {own:.1%}; with one link lost: "
        f"{one_lost(ITEMS):.1%}), where ln(w next / w before) adds up to {total:.1g}: what leads onward must somewhere "
        "lead back."
    )
