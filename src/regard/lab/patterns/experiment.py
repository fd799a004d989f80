"""patterns: which pairs each mask shows, how that grows with the length, what the tiled engine skips, and the price.

Counts are exact and come from the masks in closed form, reach from their powers. Times are measured on the native
engine. The price is what trained models of each pattern cannot tell (`patterns/task.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from regard.engine.attend import attend
from regard.engine.native.library import library
from regard.engine.tiled.tiles import Schedule
from regard.inspection.records import Grid, Line, Lines, Panel, Picture, Table
from regard.lab.cost import milliseconds
from regard.lab.maps import normal
from regard.lab.patterns import task
from regard.lab.patterns.task import layers_needed
from regard.lab.report import RESULTS, Claim, Compared, Report, Timing, confirmed
from regard.lab.setting import Setting
from regard.spec.masks import Causal, Dilated, Documents, Full, Mask, bigbird, local, longformer
from regard.spec.masks.base import plane_of

WIDTH = 64
TOKENS = "abcdefghijkl"  # in the pictures
DRAWN = len(TOKENS)
SHORT, LONG = 2048, 4096  # between them n doubles
STACKED = 512  # tokens over which layers are stacked
SMALL = ("dilated, 5 keys", "causal documents")  # as small as local: left out of the chart of growth
SEES = "Which keys (columns) each query (row) sees"
Counts = dict[str, dict[int, int]]


@dataclass(frozen=True)
class MaskPattern:
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
    MaskPattern("full", lambda n: Full(), Full(), "BERT, ViT"),
    MaskPattern("causal", lambda n: Causal(), Causal(), "GPT", "what comes later"),
    MaskPattern("local, window 3", lambda n: local(3), local(3), "Longformer, BigBird"),
    MaskPattern("dilated, 5 keys", lambda n: Dilated(5, 2), Dilated(5, 2), "Longformer", "odd distances"),
    MaskPattern("global + local", lambda n: longformer(3, [0]), longformer(3, [0]), "Longformer"),
    MaskPattern(
        "BigBird", lambda n: bigbird(n, 64), bigbird(DRAWN, 1, random=1), "blocks of 1 here, of 64 in the counts"
    ),
    MaskPattern("causal documents", _documents, _documents(DRAWN), "packed training", "what comes later, or elsewhere"),
)

BASIC = PATTERNS[:3]  # the three that the source shows


def run(setting: Setting) -> Report:
    """Run the experiment."""
    lengths = setting.choose(full=(256, 512, 1024, SHORT, LONG, 8192), quick=(256, 512, 1024, SHORT, LONG))
    counts = {pattern.name: {length: pattern.at(length).pairs(length) for length in lengths} for pattern in PATTERNS}
    trainings = setting.choose(full=3, quick=2)
    trained = task.trained_patterns(setting, setting.choose(full=33, quick=17), trainings)
    return Report(
        "patterns",
        "Which pairs does each attention pattern show, what does it save, and what does it cost?",
        (count_table(counts), reach_table(), task.price_table(trained)),
        (
            Panel(tuple(picture(pattern) for pattern in BASIC), SEES),
            Panel(tuple(picture(pattern) for pattern in PATTERNS if pattern not in BASIC), SEES),
            growth(counts),
            task.price_picture(trained),
        ),
        f"{finding(counts)} {task.price_finding(trained)}",
        (Compared(f"{RESULTS}, Experiment 2", (*claims(counts), *task.price_claims(trained))),),
        setting.record(trainings, window_of_the_trained_models=task.WINDOW),
        clock(setting),
    )


def picture(pattern: MaskPattern) -> Grid:
    """The mask over a few tokens: 1 where visible, blank where hidden."""
    plane = plane_of(pattern.drawn, DRAWN, DRAWN, 1, 1, None)
    visible = pattern.drawn.visible(plane.all).expand(1, 1, 1, DRAWN, DRAWN)[0, 0, 0]
    values = [[1.0 if seen else None for seen in row] for row in visible.tolist()]
    note = f"{pattern.drawn.pairs(DRAWN)} of {DRAWN**2} pairs; {pattern.use}"
    return Grid(values, TOKENS, TOKENS, pattern.name, note, (0.0, 1.0))


def computed(mask: Mask, length: int) -> float:
    """The share of the plane that the tiled engine computes for one head; the rest is never touched."""
    schedule = Schedule.of(plane_of(mask, length, length, 1, 1, None), mask, tile_width=1, whole_rows=False)
    pairs = [tile.pairs for _, tiles in schedule.row_blocks for tile in tiles]
    area: int = sum((each.rows.stop - each.rows.start) * (each.columns.stop - each.columns.start) for each in pairs)
    return area / length**2


def count_table(counts: Counts) -> Table:
    """Visible pairs, their growth when the length doubles, and the work that is skipped."""
    rows = []
    for pattern in PATTERNS:
        pairs, skipped = counts[pattern.name][LONG], 1 - computed(pattern.at(LONG), LONG)
        few, factor = pattern.drawn.pairs(DRAWN), doubling(counts, pattern)
        rows.append((pattern.name, few, pairs, pairs / LONG**2, factor, skipped))
    columns = ("pattern", f"n = {DRAWN}", f"n = {LONG}", "share of n²", "when n doubles", "never computed")
    title = f"Visible pairs (exact), from n = {SHORT} to {LONG}, and what the tiled engine skips at {LONG}"
    return Table(columns, rows, title)


def doubling(counts: Counts, pattern: MaskPattern) -> float:
    """How many times more pairs there are when n doubles."""
    return counts[pattern.name][LONG] / counts[pattern.name][SHORT]


def growth(counts: Counts) -> Picture:
    """Visible pairs against n."""
    lines = [Line(name, list(each), list(each.values())) for name, each in counts.items() if name not in SMALL]
    return Lines(lines, "n", "visible pairs", "Work against length", log_x=True, log_y=True)


def reach_table() -> Table:
    """What stacked layers come to know."""
    rows = []
    for pattern in PATTERNS:
        layers, share = layers_needed(pattern.at(STACKED), STACKED)
        rows.append((pattern.name, layers, share, "everything" if share == 1 else f"not {pattern.hidden}"))
    columns = ("pattern", "layers", "pairs known then", "what a query then knows of")
    return Table(columns, rows, f"Layers after which nothing more becomes known, n = {STACKED} (exact)")


def clock(setting: Setting) -> Timing:
    """Milliseconds of one forward pass of one head, best of several; on the native engine if it was built."""
    lengths = setting.choose(full=(512, 1024, 2048, 4096, 8192), quick=(512, 1024, 2048))
    engine = "tiled" if library() is None else "native"
    generator = setting.generator()
    measured = []
    for length in setting.each("n =", lengths):
        query, key, value = (normal(generator, 1, 1, length, WIDTH).float() for _ in range(3))
        calls = {
            pattern.name: partial(attend, query, key, value, mask=pattern.at(length), engine=engine)
            for pattern in PATTERNS
        }
        measured.append(milliseconds(calls, rounds=setting.choose(full=5, quick=3)))
    table = Table(
        ("n", *calls),
        [(length, *times.values()) for length, times in zip(lengths, measured, strict=True)],
        f"Milliseconds of a forward pass on the {engine} engine (one head, width {WIDTH}, one thread), best of several",
    )
    lines = [Line(name, lengths, [times[name] for times in measured]) for name in calls]
    return Timing((table,), (Lines(lines, "n", "ms", "Measured time", log_x=True, log_y=True),))


def claims(counts: Counts) -> tuple[Claim, ...]:
    """What is said of the three patterns and their cost."""
    full, causal, band = BASIC
    pairs = enumerate(picture(causal).values)
    future = sum(value is not None for i, row in pairs for value in row[i + 1 :])
    ends = 3 * LONG - counts[band.name][LONG]
    return (
        Claim("full: O(n²)", "quadratic", *_order(doubling(counts, full), 2)),
        Claim("causal: i sees only ≤ i", "triangle", f"{future} pairs above", confirmed(not future)),
        Claim("local, w = 3: O(n × w)", "linear", *_order(doubling(counts, band), 1)),
        Claim("local, w = 3: pairs", "n × w", f"3n − {ends}", "confirmed: the ends of the text see less"),
    )


def _order(factor: float, order: int) -> tuple[str, str]:
    """The factor when n doubles, and whether it is that of the order: 2 for linear, 4 for quadratic."""
    right = abs(factor / 2**order - 1) < 0.02
    return f"× {factor:.2f} when n doubles", "confirmed" if right else f"not confirmed: not × {2**order}"


def finding(counts: Counts) -> str:
    """One sentence, from the numbers."""
    full, causal, band = (doubling(counts, pattern) for pattern in BASIC)
    seen = counts[BASIC[2].name][LONG]
    return (
        f"When n doubles to {LONG}, full and causal attention show {full:.1f} and {causal:.1f} times as many pairs, a "
        f"window of 3 only {band:.1f} times as many: {seen:,} of {LONG**2:,}, for which the tiled engine computes "
        f"{computed(BASIC[2].at(LONG), LONG):.1%} of the plane."
    )
