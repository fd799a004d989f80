"""patterns: which pairs each mask shows, how that grows with the length, what the tiled engine skips, and the price.

Counts are exact and come from the masks in closed form. Times are measured on the native engine. Reach comes from
powers of the mask: after L layers, query i depends on key j if a path of L visible steps leads from i to j. The price
is what trained models of each pattern cannot tell: they must name a color that stands somewhere in the text, and guess
where they cannot reach it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from regard.engine.attend import attend
from regard.engine.native.library import library
from regard.engine.tiled.tiles import Schedule
from regard.inspection.records import Cell, Estimate, Grid, Line, Lines, Panel, Picture, Table
from regard.lab.maps import normal
from regard.lab.patterns.task import COLORS, FULL, GLOBAL, LOCAL, MASKS, WINDOW, Telling, by_distance, draw
from regard.lab.report import (
    RESULTS,
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
from regard.lab.statistics import curve, share
from regard.lab.stopwatch import timed
from regard.lab.training import train
from regard.spec.masks import Causal, Dilated, Documents, Full, Mask, bigbird, local, longformer
from regard.spec.masks.base import plane_of

WIDTH = 64
TOKENS = "abcdefghijkl"  # in the pictures
DRAWN = len(TOKENS)
SHORT, LONG = 2048, 4096  # between them n doubles
STACKED = 512  # tokens over which layers are stacked
SMALL = ("dilated, 5 keys", "causal documents")  # as small as local: left out of the chart of growth
SEES = "Which keys (columns) each query (row) sees"
SURE = 0.9  # right more often than this is called right
RIGHT = DecisionRule(((SURE, "not always right"), (math.inf, "right")))

Counts = dict[str, dict[int, int]]


@dataclass(frozen=True)
class MaskKind:
    """A mask at any length, the small one that is drawn, its users, and what stays hidden in any number of layers."""

    name: str
    at: Callable[[int], Mask]
    drawn: Mask
    use: str
    hidden: str = ""


def _documents(length: int) -> Mask:
    """Documents of 5, 4 and 7 tokens, over and over; each is causal."""
    rounds = length // 16 + 1
    return Documents(torch.arange(3 * rounds).repeat_interleave(torch.tensor([5, 4, 7] * rounds))[:length]) & Causal()


PATTERNS = (
    MaskKind("full", lambda n: Full(), Full(), "BERT, ViT"),
    MaskKind("causal", lambda n: Causal(), Causal(), "GPT", "what comes later"),
    MaskKind("local, window 3", lambda n: local(3), local(3), "Longformer, BigBird"),
    MaskKind("dilated, 5 keys", lambda n: Dilated(5, 2), Dilated(5, 2), "Longformer", "odd distances"),
    MaskKind("global + local", lambda n: longformer(3, [0]), longformer(3, [0]), "Longformer"),
    MaskKind("BigBird", lambda n: bigbird(n, 64), bigbird(DRAWN, 1, random=1), "blocks of 1 here, of 64 in the counts"),
    MaskKind("causal documents", _documents, _documents(DRAWN), "packed training", "what comes later, or elsewhere"),
)
BASIC = PATTERNS[:3]  # the three that the source shows


def run(setting: Setting) -> Report:
    """Run the experiment."""
    lengths = setting.choose(full=(256, 512, 1024, SHORT, LONG, 8192), quick=(256, 512, 1024, SHORT, LONG))
    counts = {pattern.name: {length: pattern.at(length).pairs(length) for length in lengths} for pattern in PATTERNS}
    length, trainings = setting.choose(full=(33, 3), quick=(17, 2))
    trained = trained_patterns(setting, length, trainings)
    return Report(
        "patterns",
        "Which pairs does each attention pattern show, what does it save, and what does it cost?",
        tables(counts, trained),
        pictures(counts, trained),
        finding(counts, trained),
        compared(*claims(counts, trained)),
        setting.record(trainings, window_of_the_trained_models=WINDOW),
        clock(setting),
        why="Masks decide what a model can know and what it costs: quadratic work is what limits the length of texts.",
        setup="A mask says which keys (columns) each query (row) may see. Pairs are counted exactly. Then small models "
        f"are trained on texts of {length} tokens in which one token, at a place of its own, is a color and every "
        f"token must name it: a window of {WINDOW} sees {WINDOW // 2} tokens to either side in one layer, and further "
        "only through further layers or a global token, which all see and which sees all.",
        takeaway=takeaway(counts, trained),
    )


def visible(mask: Mask, length: int) -> Tensor:
    """(query, key), with every token seeing itself, as the residual stream lets it."""
    plane = plane_of(mask, length, length, 1, 1, None)
    seen = mask.visible(plane.all).expand(1, 1, 1, length, length)[0, 0, 0]
    return seen | torch.eye(length, dtype=torch.bool)


def after(first: Tensor, second: Tensor) -> Tensor:
    """What is known after both."""
    return (first.float() @ second.float()) > 0


def known(mask: Mask, length: int, layers: int) -> Tensor:
    """(query, key): what is known after so many layers."""
    reached, seen = torch.eye(length, dtype=torch.bool), visible(mask, length)
    for _ in range(layers):
        reached = after(reached, seen)
    return reached


def layers_needed(mask: Mask, length: int) -> tuple[int, float]:
    """The layers after which nothing more becomes known, and the share of pairs that is known then."""
    doublings = [visible(mask, length)]  # what is known after 1, 2, 4, … layers
    while not torch.equal(twice := after(doublings[-1], doublings[-1]), doublings[-1]):
        doublings.append(twice)
    layers, so_far = 0, torch.eye(length, dtype=torch.bool)
    for exponent in range(len(doublings) - 1, -1, -1):
        further = after(so_far, doublings[exponent])
        if not torch.equal(further, doublings[-1]):
            layers, so_far = layers + 2**exponent, further
    return layers + 1, float(doublings[-1].double().mean())


def computed(mask: Mask, length: int) -> float:
    """The share of the plane that the tiled engine computes for one head; the rest is never touched."""
    schedule = Schedule.of(plane_of(mask, length, length, 1, 1, None), mask, tile_width=1, whole_rows=False)
    pairs = [tile.pairs for _, tiles in schedule.row_blocks for tile in tiles]
    area: int = sum((each.rows.stop - each.rows.start) * (each.columns.stop - each.columns.start) for each in pairs)
    return area / length**2


def doubling(counts: Counts, pattern: MaskKind) -> float:
    """How many times more pairs there are when n doubles."""
    return counts[pattern.name][LONG] / counts[pattern.name][SHORT]


@dataclass(frozen=True)
class TrainedPattern:
    """All trainings of a pattern in so many layers; `right` is the share of places right, (training, distance)."""

    pattern: str
    layers: int
    length: int
    right: Tensor

    @property
    def name(self) -> str:
        return f"{self.pattern}, {self.layers} layer{'s' if self.layers > 1 else ''}"

    @property
    def reach(self) -> int:
        """The largest distance over which every place depends on every other, by the mask; the start is left out."""
        seen = known(MASKS[self.pattern], self.length, self.layers)[1:, 1:]
        reached = [bool(seen.diagonal(d).all() and seen.diagonal(-d).all()) for d in range(self.length - 1)]
        return reached.index(False) - 1 if False in reached else self.length - 2

    @property
    def pairs(self) -> int:
        """Visible pairs of all layers."""
        return self.layers * MASKS[self.pattern].pairs(self.length)

    def within(self) -> Estimate:
        """Share of places right within the reach of the mask, without the color's own place."""
        return share(self.right[:, 1 : self.reach + 1].mean(1))

    def beyond(self) -> Estimate | None:
        """Share of places right beyond the reach of the mask, if there are any."""
        rest = self.right[:, self.reach + 1 :]
        return share(rest.mean(1)) if rest.shape[1] else None


def trained_patterns(setting: Setting, length: int, trainings: int) -> list[TrainedPattern]:
    """Full in one layer, a window in 1, 2, 4 … layers until it reaches everything, and a window with a global token."""
    depths = [1]
    while depths[-1] * (WINDOW // 2) < length - 2:
        depths.append(2 * depths[-1])
    variants = [(FULL, 1), *((LOCAL, depth) for depth in depths), (GLOBAL, 2)]
    seeds = setting.seeds(trainings)
    texts = draw(setting.choose(full=2000, quick=500), length, setting.generator())
    trained = []
    for pattern, layers in variants:
        models = [train(training_task(setting, pattern, layers, length, seed)).model for seed in seeds]
        right = torch.stack([by_distance(model, texts) for model in models])
        trained.append(TrainedPattern(pattern, layers, length, right))
    return trained


def training_task(setting: Setting, pattern: str, layers: int, length: int, seed: int) -> Telling:
    """What is trained."""
    steps, batch = setting.choose(full=(250, 16), quick=(100, 8))
    return Telling(seed, steps, 1e-2, 0.3, 5, pattern, layers, length, batch)


def tables(counts: Counts, trained: list[TrainedPattern]) -> tuple[Table, ...]:
    """Visible pairs and the work that is skipped, what stacked layers come to know, and right answers by reach."""
    pairs: list[tuple[Cell, ...]] = []
    reach: list[tuple[Cell, ...]] = []
    for pattern in PATTERNS:
        far, skipped = counts[pattern.name][LONG], 1 - computed(pattern.at(LONG), LONG)
        pairs.append((pattern.name, pattern.drawn.pairs(DRAWN), far, far / LONG**2, doubling(counts, pattern), skipped))
        layers, known_share = layers_needed(pattern.at(STACKED), STACKED)
        reach.append((pattern.name, layers, known_share, "everything" if known_share == 1 else f"not {pattern.hidden}"))
    price: list[tuple[Cell, ...]] = [
        (model.name, model.pairs, model.reach, model.within(), model.beyond() or "nothing beyond") for model in trained
    ]
    return (
        Table(
            ("pattern", f"n = {DRAWN}", f"n = {LONG}", "share of n²", "when n doubles", "never computed"),
            pairs,
            f"Visible pairs (exact), from n = {SHORT} to {LONG}, and what the tiled engine skips at {LONG}",
        ),
        Table(
            ("pattern", "layers", "pairs known then", "what a query then knows of"),
            reach,
            f"Layers after which nothing more becomes known, n = {STACKED} (exact)",
        ),
        Table(
            ("model", "pairs", "reach", "right within it", "right beyond it"),
            price,
            f"Trained: every place of {trained[0].length} must name the one color in the text, window {WINDOW}; "
            f"guessing is right {1 / COLORS:.0%} of the time; mean and 95% interval over {len(trained[0].right)} "
            "trainings",
        ),
    )


def picture(pattern: MaskKind) -> Grid:
    """The mask over a few tokens: 1 where visible, blank where hidden."""
    values = [[1.0 if seen else None for seen in row] for row in visible(pattern.drawn, DRAWN).tolist()]
    note = f"{pattern.drawn.pairs(DRAWN)} of {DRAWN**2} pairs; {pattern.use}"
    return Grid(values, TOKENS, TOKENS, pattern.name, note, (0.0, 1.0))


def pictures(counts: Counts, trained: list[TrainedPattern]) -> tuple[Picture, ...]:
    """The masks, visible pairs against n, and places right against the distance."""
    growth = [Line(name, list(each), list(each.values())) for name, each in counts.items() if name not in SMALL]
    far = list(range(1, trained[0].length - 1))
    right = [curve(model.name, far, [share(model.right[:, distance]) for distance in far]) for model in trained]
    return (
        Panel(tuple(picture(pattern) for pattern in BASIC), SEES),
        Panel(tuple(picture(pattern) for pattern in PATTERNS if pattern not in BASIC), SEES),
        Lines(growth, "n", "visible pairs", "Work against length", log_x=True, log_y=True),
        Lines(right, "distance from the color", "places right", f"Who can tell what is far (window {WINDOW})"),
    )


def clock(setting: Setting) -> Timing:
    """Milliseconds of one forward pass of one head; on the native engine if it was built."""
    lengths = setting.choose(full=(512, 1024, 2048, 4096, 8192), quick=(512, 1024, 2048))
    engine = "tiled" if library() is None else "native"
    generator = setting.generator()
    calls = {}
    for length in lengths:
        query, key, value = (normal(generator, 1, 1, length, WIDTH).float() for _ in range(3))
        calls[length] = {
            pattern.name: partial(attend, query, key, value, mask=pattern.at(length), engine=engine)
            for pattern in PATTERNS
        }
    times = timed(calls, turns=setting.choose(full=5, quick=3))
    table = times.table("n", f"A forward pass on the {engine} engine, one head, width {WIDTH}")
    return Timing((table,), times.pictures("n", "Measured time of a forward pass"))


def _compared(trained: list[TrainedPattern]) -> tuple[TrainedPattern, Estimate, TrainedPattern, TrainedPattern]:
    """The window in one layer, its right answers beyond its reach, the window in most layers, and a global token."""
    windows = [model for model in trained if model.pattern == LOCAL]
    lost = windows[0].beyond()
    assert lost is not None
    return windows[0], lost, windows[-1], next(model for model in trained if model.pattern == GLOBAL)


def claims(counts: Counts, trained: list[TrainedPattern]) -> tuple[Claim, ...]:
    """What is said of the three patterns and their cost, and what is lost."""
    full, causal, band = BASIC
    future = int(visible(causal.drawn, DRAWN).triu(1).sum())
    missing = DRAWN**2 - full.drawn.pairs(DRAWN)
    _, lost, _, _ = _compared(trained)
    local = quoted(RESULTS, "Trade-off: O(n×w) instead of O(n²), but loses global context")
    doubled = "visible pairs when n doubles, as a multiple"
    widest = int(visible(band.drawn, DRAWN).sum(1).max())
    guessing = DecisionRule(((2 / COLORS, "confirmed"), (SURE, "partly"), (math.inf, "corrected")))
    note = f"in one layer; guessing is right {1 / COLORS:.0%} of the time, and stacked layers reach further"
    return (
        Claim(
            quoted(RESULTS, "Every position can attend to every other position"),
            f"pairs of {DRAWN} tokens that are hidden",
            missing,
            below(0),
        ),
        Claim(
            quoted(RESULTS, "Cost: O(n²) — quadratic in sequence length"),
            f"full: {doubled}",
            doubling(counts, full),
            near(4, 0.1),
        ),
        Claim(
            quoted(RESULTS, "Position i can only see positions ≤ i"),
            f"visible pairs above the diagonal, {DRAWN} tokens",
            future,
            below(0),
        ),
        Claim(
            quoted(RESULTS, "Only attend within a window (here, window=3)"),
            "keys that a query sees at most",
            widest,
            near(3, 0.5),
        ),
        Claim(local, f"window of 3: {doubled}", doubling(counts, band), near(2, 0.05)),
        Claim(local, f"share of places right beyond the reach of a window of {WINDOW}", lost, guessing, note),
    )


def takeaway(counts: Counts, trained: list[TrainedPattern]) -> Takeaway:
    """What a window saves and loses."""
    _, lost, _, mended = _compared(trained)
    return Takeaway(
        "A window makes the work grow with n instead of n², and one layer of it knows nothing beyond; one global token "
        "brings the rest back.",
        "In these trainings a window does not save what it should, or does not lose what it should.",
        (
            Evidence(
                "visible pairs of a window when n doubles, as a multiple", doubling(counts, BASIC[2]), near(2, 0.05)
            ),
            Evidence("share of places right beyond the window, one layer", lost, below(2 / COLORS)),
            Evidence("share of places right with a global token, 2 layers", mended.within(), above(SURE)),
        ),
    )


def finding(counts: Counts, trained: list[TrainedPattern]) -> str:
    """Sentences, from the numbers."""
    full, causal, band = (doubling(counts, pattern) for pattern in BASIC)
    single, lost, deep, mended = _compared(trained)
    reached = {model.name: RIGHT.verdict(model.within(), "not shown to be right") for model in (deep, mended)}
    return (
        f"When n doubles to {LONG}, full and causal attention show {full:.1f} and {causal:.1f} times as many pairs, a "
        f"window of 3 only {band:.1f} times as many: {counts[BASIC[2].name][LONG]:,} of {LONG**2:,}, for which the "
        f"tiled engine computes {computed(BASIC[2].at(LONG), LONG):.1%} of the plane. Where every place must name a "
        f"color of the text, one layer with a window of {WINDOW} is right {single.within().mean:.0%} of the time up to "
        f"distance {single.reach} and {lost.mean:.0%} beyond (guessing: {1 / COLORS:.0%}); {deep.layers} layers are "
        f"{reached[deep.name]} up to distance {deep.reach} ({deep.within().mean:.0%}), and 2 layers with one global "
        f"token are {reached[mended.name]} at any distance ({mended.within().mean:.0%}), with "
        f"{mended.pairs / deep.pairs:.0%} of the pairs."
    )
