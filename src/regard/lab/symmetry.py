"""symmetry: what queries and keys lose when they share one projection.

With W_Q = W_K the scores are symmetric. The weights are not, for each row has a denominator of its own:
ln w_ij − ln w_ji = lse_j − lse_i, so that e^(lse_i) · w_ij = e^(lse_j) · w_ji. Such weights can lead in one direction
along a line, on which the denominators change all the way, but not round a circle: there the logarithms of
w(to the next) / w(to the one before) add up to 0, and if all other links lead onward, one must lead back.
"""

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.inspection.capture import capture
from regard.inspection.records import Bars, Cell, Estimate, Grid, Line, Lines, Panel, Picture, Table
from regard.lab.maps import attend_statistics, normal, weights
from regard.lab.report import CONCEPTS, Claim, Compared, Report, Timing, confirmed
from regard.lab.setting import Setting
from regard.lab.statistics import curve, mean, number, share, training_time
from regard.lab.tasks.relations import Relating, right
from regard.lab.training import Trained, train

TOKENS, WIDTH = 6, 16
EXACT = 1e-12  # what float64 leaves of zero here
LEARNED = 0.95  # a share of right answers that is called learned
ITEMS, PAYLOADS, TEXTS = 8, 8, 512
FREEDOM_WIDTH = 12
OWN, SHARED, SEVERAL = "W_Q and W_K", "one W for both", "one W, 4 heads"
VARIANTS = {OWN: (False, 1), SHARED: (True, 1), SEVERAL: (True, 4)}
ASKED = {
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


def random_maps(generator: torch.Generator, draws: int, shared: bool) -> SymmetryDraws:
    """Random tokens and projections; `shared` uses one projection for queries and keys."""
    tokens = normal(generator, draws, 1, TOKENS, WIDTH)
    project, other = (normal(generator, draws, 1, WIDTH, WIDTH) / math.sqrt(WIDTH) for _ in range(2))
    query = tokens @ project
    key = query if shared else tokens @ other
    _, seen = attend_statistics(query, key, key, "lse")
    scores = query @ key.mT / math.sqrt(WIDTH)
    # a sum of n products, in any order, is off by at most n · ε/2 of the sum of their sizes (and ε²); division adds one
    sizes = query.abs() @ key.abs().mT / math.sqrt(WIDTH)
    rounding = (WIDTH + 2) * torch.finfo(scores.dtype).eps * torch.maximum(sizes, sizes.mT)
    return SymmetryDraws(scores[:, 0], weights(query, key)[:, 0], seen["lse"][:, 0], rounding[:, 0])


@dataclass(frozen=True)
class Circle:
    """The weights of one text whose items stand in the order of their types, (query, key), in float64."""

    weights: Tensor

    @property
    def links(self) -> Tensor:
        """ln(weight on the next type / weight on the one before), one for each type."""
        logs, types = self.weights.log(), torch.arange(len(self.weights))
        return logs[types, (types + 1) % len(types)] - logs[types, (types - 1) % len(types)]

    @property
    def onward(self) -> Tensor:
        """The weight on the next type, one for each type."""
        types = torch.arange(len(self.weights))
        return self.weights[types, (types + 1) % len(types)]


def circle(model: nn.Module, types: int) -> Circle:
    """How the first head of a model looks round the circle; all payloads are 0."""
    order = torch.arange(types).unsqueeze(0)
    with torch.no_grad():
        captured = capture(copy.deepcopy(model).double(), order, torch.zeros_like(order))
    return Circle(captured[0, 0].dense()[0])


def freedom(width: int, heads: int, shared: bool, generator: torch.Generator) -> int:
    """In how many directions the scores and values of a layer can move: the rank of their derivative by its matrices.

    `shared` has one matrix for queries, keys and values, else there are three, each width × width. W_O stays as it is.
    """
    d_k = width // heads
    given = normal(generator, 1 if shared else 3, width, width)

    def made(matrices: Tensor) -> Tensor:
        query, key, value = (matrices[index % len(matrices)] for index in range(3))
        forms = [query[:, part] @ key[:, part].T for part in torch.arange(width).split(d_k)]
        return torch.cat([*(form.flatten() for form in forms), value.flatten()])

    derivative = torch.func.jacrev(made)(given).flatten(1)
    return int(torch.linalg.matrix_rank(derivative))


@dataclass(frozen=True)
class SymmetryTraining:
    """One training: the share of right answers to new texts, and how the head looks round a circle."""

    right: float
    circle: Circle
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
    questions = setting.choose(full=tuple(ASKED), quick=("previous", "next"))
    pairs = [(question, name) for question in questions for name in VARIANTS if question == "next" or name != SEVERAL]
    asked = [(question, ITEMS, name) for question, name in pairs]
    asked += [("next", size, name) for size in sizes for name in (OWN, SHARED) if size != ITEMS]
    runs = {key: [measured(setting, seed, *key) for seed in seeds] for key in asked}
    free = {heads: _freedom(setting, heads) for heads in (1, 2, 3, 4)}
    return Report(
        "symmetry",
        "Is attention symmetric when queries and keys share one projection, and can it still tell directions?",
        (learned_table(runs), random_table(random), circle_table(runs, sizes), freedom_table(free)),
        (map_picture(runs), circle_picture(runs, sizes), random_picture(random[SHARED])),
        finding(random, runs),
        (Compared(f"{CONCEPTS}, section 3", claims(random, runs, free)),),
        setting.record(draws, trainings_of_each_kind=repetitions, steps=training_task(setting, 0, *asked[0]).steps),
        Timing((training_time(each.trained for group in runs.values() for each in group),)),
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
    asked = training_task(setting, seed, question, types, variant)
    trained = train(asked)
    texts = asked.texts(TEXTS, torch.Generator().manual_seed(seed + 2))
    answered = right(asked, trained.model, texts)[question]
    return SymmetryTraining(answered, circle(trained.model, types), trained)


def _freedom(setting: Setting, heads: int) -> tuple[int, int]:
    """The free directions of three matrices, and of one in their place."""
    generator = setting.generator()
    three, one = (freedom(FREEDOM_WIDTH, heads, shared, generator) for shared in (False, True))
    return three, one


def rights(runs: Runs, question: str, types: int, variant: str) -> Estimate:
    """The share of right answers."""
    return share([each.right for each in runs[question, types, variant]])


def learned_table(runs: Runs) -> Table:
    """What each variant learns."""
    rows: list[list[Cell]] = []
    for question in (each for each in ASKED if (each, ITEMS, OWN) in runs):
        cells = [rights(runs, question, ITEMS, name) if (question, ITEMS, name) in runs else "" for name in VARIANTS]
        rows.append([ASKED[question], *cells])
    repetitions = len(runs["next", ITEMS, OWN])
    title = (
        f"Trained: {ITEMS} items, each wants what another holds (guessing: {1 / PAYLOADS:.3f}); share of right answers "
        f"to {TEXTS} new texts, mean and 95% interval over {repetitions} trainings"
    )
    return Table(("each item wants what is held by", *VARIANTS), rows, title)


def random_table(random: RandomMaps) -> Table:
    """The largest difference between a pair and its mirror image."""
    rows: list[tuple[Cell, ...]] = [(name, *(mean(each) for each in maps.apart())) for name, maps in random.items()]
    columns = ("random", "max |s_ij − s_ji|", "max |w_ij − w_ji|", "max |ln w_ij − ln w_ji − (lse_j − lse_i)|")
    title = f"Random self-attention of {TOKENS} tokens: scores s and weights w of a pair and its mirror image"
    return Table(columns, rows, title)


def circle_table(runs: Runs, sizes: tuple[int, ...]) -> Table:
    """Circles of several sizes."""
    rows: list[tuple[Cell, ...]] = []
    for size in sizes:
        sums = [number([float(each.circle.links.sum()) for each in runs["next", size, name]]) for name in (OWN, SHARED)]
        back = number([float((each.circle.links < 0).sum()) for each in runs["next", size, SHARED]])
        rights_ = [rights(runs, "next", size, name) for name in (OWN, SHARED)]
        rows.append((size, *rights_, one_lost(size), back, *sums))
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


def map_picture(runs: Runs) -> Picture:
    """Trained weights round the circle."""
    grids = [
        Grid(runs["next", ITEMS, name][0].circle.weights.tolist(), title=name, limits=(0.0, 1.0))
        for name in (OWN, SHARED)
    ]
    return Panel(grids, "Trained: type i looks for type i + 1, the last for 0")


def circle_picture(runs: Runs, sizes: tuple[int, ...]) -> Picture:
    """Right answers against the size of the circle, and the links of one."""
    lines = [curve(name, sizes, [rights(runs, "next", size, name) for size in sizes]) for name in (OWN, SHARED)]
    lines.append(Line("one link lost", sizes, [one_lost(size) for size in sizes]))
    labels = [f"{place} → {(place + 1) % ITEMS}" for place in range(ITEMS)]
    links = {name: runs["next", ITEMS, name][0].circle.links.tolist() for name in (OWN, SHARED)}
    shares = Lines(lines, "types in the circle", "share of right answers", "Round a circle")
    return Panel((shares, Bars(labels, links, "ln(w next / w before)", f"Links of a circle of {ITEMS}")))


def random_picture(maps: SymmetryDraws) -> Picture:
    """Scores and weights of the first draw."""
    scores = Grid(maps.scores[0].tolist(), title="scores: symmetric")
    weights = Grid(maps.weights[0].tolist(), title="weights: not", limits=(0.0, float(maps.weights[0].max())))
    return Panel((scores, weights), "Random tokens, one projection for queries and keys")


def claims(random: RandomMaps, runs: Runs, free: dict[int, tuple[int, int]]) -> tuple[Claim, ...]:
    """What is said of separate and of shared projections."""
    scores, table, _ = random[SHARED].apart()
    own, circles, several = (rights(runs, "next", ITEMS, name) for name in (OWN, SHARED, SEVERAL))
    line = rights(runs, "previous", ITEMS, SHARED)
    ratios = [three / one for three, one in free.values()]
    same = "scores are, up to rounding" if random[SHARED].symmetric else f"scores differ by {float(scores.max()):.1g}"
    equal = confirmed(float(table.max()) < EXACT, f"corrected: {same}; ln w differs by lse_j − lse_i")
    capacity = confirmed(min(ratios) == 3, "corrected: 3× the numbers, (3 − 1/h)× the free directions")
    return (
        Claim("two projections: A → B without B → A", "yes", own, _verdict(own, "learned round a circle")),
        Claim("W_Q = W_K: A → B equals B → A", "equal", mean(table), equal),
        Claim("W_Q = W_K: no directions (a line)", "cannot", line, _cannot(line, circular=False)),
        Claim(f"W_Q = W_K: no directions (a circle of {ITEMS})", "cannot", circles, _cannot(circles)),
        Claim("the same with 4 heads", "cannot", several, _cannot(several)),
        Claim("three matrices: 3× the learning capacity", "3×", f"{min(ratios):.2f}× to {max(ratios):.2f}×", capacity),
    )


def _verdict(estimate: Estimate, what: str) -> str:
    return f"confirmed: {what}" if estimate.mean >= LEARNED else f"not shown: not learned here, {estimate.mean:.2f}"


def _cannot(estimate: Estimate, circular: bool = True) -> str:
    """What is left of "cannot"."""
    if estimate.mean >= LEARNED:
        return "corrected: it can"
    if estimate.mean > 2 / PAYLOADS and not circular:
        return "partly learned"
    if estimate.mean > 2 / PAYLOADS:
        return f"partly: with one link lost it would be {one_lost(ITEMS):.3f}"
    return "confirmed"


def finding(random: RandomMaps, runs: Runs) -> str:
    """One sentence, from the numbers."""
    scores, table, _ = random[SHARED].apart()
    line, circles, own = (
        rights(runs, question, ITEMS, name).mean
        for question, name in (("previous", SHARED), ("next", SHARED), ("next", OWN))
    )
    total = max(abs(float(each.circle.links.sum())) for each in runs["next", ITEMS, SHARED])
    return (
        f"With one projection a pair and its mirror image differ by at most {float(scores.max()):.1g} in the scores "
        f"{'(rounding) ' if random[SHARED].symmetric else ''}"
        f"and by {mean(table).mean:.2f} in the weights; trained, such a layer gives {line:.1%} right answers along a "
        f"line and {circles:.1%} round a circle of {ITEMS} (two projections: {own:.1%}; with one link lost: "
        f"{one_lost(ITEMS):.1%}), where ln(w next / w before) adds up to {total:.1g}: what leads onward must somewhere "
        "lead back."
    )
