"""variance: how large q · k gets with the width, what that does to softmax, and what dividing changes.

Scores are sums of d products of independent standard normal numbers, so their variance should be d. Saturation is
measured on attention of 20 random tokens, as in `scaling`.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.records import Lines, Panel, Picture, Table
from regard.lab.maps import KEYS, attend_statistics, chunks, normal
from regard.lab.report import (
    CONCEPTS,
    SCORE_FUNCTIONS,
    Claim,
    DecisionRule,
    Evidence,
    Quote,
    Report,
    Takeaway,
    above,
    below,
    compared,
    near,
    quoted,
    within,
)
from regard.lab.scaling import NONE, ROOT, SCALINGS, WHOLE
from regard.lab.setting import Setting
from regard.lab.statistics import curve, mean, positive, share

WIDTHS = (16, 64, 256, 512)
PAIRS = 1000  # independent pairs of one repetition
DEVIATION = 2.0  # standard deviation of the components in the counter-example: variance 4
SATURATED = 0.9  # a query is called saturated when one key takes this share
ROWS = {
    16: "| 16 | 16 | [-8, +8] | Somewhat smooth |",
    64: "| 64 | 64 | [-16, +16] | Starting to saturate |",
    256: "| 256 | 256 | [-32, +32] | Heavily saturated |",
    512: "| 512 | 512 | [-45, +45] | Nearly one-hot |",
}
BEHAVIORS = {width: row.split("|")[4].strip() for width, row in ROWS.items()}
CHAPTER = {64: ("[-16, 16]", "Softmax works OK"), 512: ("[-45, 45]", "Softmax saturates!")}
# the share of saturated queries that each phrase is taken to mean
MEANT = {
    "Softmax works OK": below(0.05),
    "Somewhat smooth": below(0.05),
    "Starting to saturate": within(0.05, 0.33),
    "Heavily saturated": above(0.5),
    "Softmax saturates!": above(0.5),
    "Nearly one-hot": above(0.75),
}
SATURATION = DecisionRule(((0.1, "not saturated"), (0.5, "partly saturated"), (math.inf, "saturated")))
EQUAL = 0.05  # a relative difference that still counts as equal
FLAT = 0.9  # a share of the keys that is almost all


@dataclass(frozen=True)
class DotProducts:
    """One number per repetition: variance, the quantiles 2.5 % and 97.5 %, and the share within ±2√d."""

    variance: Tensor
    low: Tensor
    high: Tensor
    inside: Tensor


@dataclass(frozen=True)
class SaturationDraws:
    """One number per draw of 20 queries: mean effective number of keys, and the share of saturated queries."""

    effective: Tensor
    saturated: Tensor


ByWidth = dict[int, dict[str, SaturationDraws]]  # by width and scaling


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions = setting.choose(full=200, quick=20)
    generator = setting.generator()
    scores: dict[int, DotProducts] = {}
    rows: ByWidth = {}
    for width in setting.each("d =", WIDTHS):
        scores[width] = sampled(generator, width, repetitions)
        rows[width] = {name: attended(generator, width, name, repetitions) for name in SCALINGS}
    wide = sampled(generator, 64, repetitions, deviation=DEVIATION)
    return Report(
        "variance",
        "How large do dot products get as vectors get wider, and when does softmax saturate?",
        tables(scores, rows),
        (picture(scores, rows),),
        finding(scores, rows),
        compared(*claims(scores, rows, wide)),
        setting.record(repetitions),
        why="Softmax of large scores gives one key everything, and the width of a head decides how large scores are.",
        setup=f"Pairs of random vectors with independent components of mean 0 and variance 1, {PAIRS} pairs a "
        f"repetition; then attention of {KEYS} random tokens with scores as they are, ÷ √d and ÷ d. Keys in use are "
        "e^H, the number of equal weights that would have the same entropy H.",
        takeaway=takeaway(scores, rows),
    )


def sampled(generator: torch.Generator, width: int, repetitions: int, deviation: float = 1.0) -> DotProducts:
    """Dot products of independent pairs, a thousand for each repetition."""
    draws = []
    for _ in range(repetitions):
        query, key = (deviation * normal(generator, PAIRS, width) for _ in range(2))
        draws.append((query * key).sum(-1))
    scores = torch.stack(draws)
    low, high = (scores.quantile(level, dim=1) for level in (0.025, 0.975))
    return DotProducts(scores.var(1), low, high, (scores.abs() <= 2 * math.sqrt(width)).double().mean(1))


def attended(generator: torch.Generator, width: int, scaling: str, repetitions: int) -> SaturationDraws:
    """Attention of 20 random tokens over themselves."""
    draws = []
    for count in chunks(repetitions):
        query, key, value = (normal(generator, count, 1, KEYS, size) for size in (width, width, 1))
        _, statistics = attend_statistics(query, key, value, "entropy", "peak", score=SCALINGS[scaling](width))
        entropy, peak = statistics["entropy"], statistics["peak"]
        draws.append((entropy.exp().mean((1, 2)), (peak >= SATURATED).double().mean((1, 2))))
    return SaturationDraws(*(torch.cat(part) for part in zip(*draws, strict=True)))


def tables(scores: dict[int, DotProducts], rows: ByWidth) -> tuple[Table, ...]:
    """Dot products, and what softmax makes of them."""
    products = Table(
        ("d", "Var(q · k)", "2.5% quantile", "97.5% quantile", "share in ±2√d"),
        [
            (width, positive(draws.variance), mean(draws.low), mean(draws.high), share(draws.inside))
            for width, draws in scores.items()
        ],
        "Dot products of standard normal vectors, mean and 95% interval",
    )
    keys = Table(
        ("d", *(f"keys, {name}" for name in SCALINGS), f"weight ≥ {SATURATED}"),
        [
            (width, *(positive(draws[name].effective) for name in SCALINGS), share(draws[NONE].saturated))
            for width, draws in rows.items()
        ],
        f"Effective number of keys e^H of {KEYS}, and how often one key takes {SATURATED:.0%}, unscaled",
    )
    return products, keys


def picture(scores: dict[int, DotProducts], rows: ByWidth) -> Picture:
    """Variance against d (dividing scores by c divides it by c²), and the effective number of keys."""
    variances = [
        curve(name, WIDTHS, [mean(scores[width].variance / width**power) for width in WIDTHS])
        for name, power in {NONE: 0, ROOT: 1, WHOLE: 2}.items()
    ]
    keys = [curve(name, WIDTHS, [mean(rows[width][name].effective) for width in WIDTHS]) for name in SCALINGS]
    return Panel(
        (
            Lines(variances, "d", "Var(score)", "Variance of the scores", log_x=True, log_y=True),
            Lines(keys, "d", "effective keys e^H", f"Keys in use, of {KEYS}", log_x=True),
        )
    )


def claims(scores: dict[int, DotProducts], rows: ByWidth, wide: DotProducts) -> tuple[Claim, ...]:
    """The table of dimensions, ranges and behaviors, the two rows of the other document, and what it leaves out."""
    listed = []
    for width, text in ROWS.items():
        quote = quoted(CONCEPTS, text)
        variance, what = positive(scores[width].variance), f"variance of q · k at d = {width}"
        listed.append(Claim(quote, what, variance, near(width, EQUAL * width)))
        listed.append(_ranged(quote, width, scores[width]))
        listed.append(_behavior(quote, width, BEHAVIORS[width], rows[width][NONE]))
    flat, keys = mean(rows[WIDTHS[-1]][WHOLE].effective), f"keys in use of {KEYS}, ÷ d, d = {WIDTHS[-1]}"
    listed.append(
        Claim(quoted(CONCEPTS, "| d_k | 1/d_k | Too small, too flat attention |"), keys, flat, above(FLAT * KEYS))
    )
    for width, (span, words) in CHAPTER.items():
        listed.append(_ranged(quoted(SCORE_FUNCTIONS, span), width, scores[width]))
        listed.append(_behavior(quoted(SCORE_FUNCTIONS, words), width, words, rows[width][NONE]))
    variance = positive(scores[64].variance)
    grows = quoted(SCORE_FUNCTIONS, "**Var[q·k] = d** (variance grows with dimension!)")
    listed.append(Claim(grows, "variance of q · k at d = 64", variance, near(64, EQUAL * 64)))
    unit = quoted(SCORE_FUNCTIONS, "**Var[q·k/√d] = 1** (constant variance)")
    over = positive(scores[WIDTHS[-1]].variance / WIDTHS[-1])
    listed.append(Claim(unit, f"variance of q · k / √d at d = {WIDTHS[-1]}", over, near(1, EQUAL)))
    independent = quoted(SCORE_FUNCTIONS, "For vectors q, k ∈ ℝ^d with independent components")
    what = f"variance of q · k at d = 64, components independent with variance {DEVIATION**2:g}"
    note = "independence is not enough; components must have unit variance too"
    listed.append(Claim(independent, what, positive(wide.variance), near(64, EQUAL * 64), note))
    return tuple(listed)


def _ranged(quote: Quote, width: int, draws: DotProducts) -> Claim:
    """A printed range, which is ±2√d: it holds 95 % of normal scores."""
    what = f"share of the scores within ±2√d = ±{2 * math.sqrt(width):.0f}"
    return Claim(
        quote, what, share(draws.inside), within(0.93, 0.97), "a range of two standard deviations, not a bound"
    )


def _behavior(quote: Quote, width: int, words: str, rows: SaturationDraws) -> Claim:
    """A description of a width, compared with the share of saturated queries."""
    what = f"share of queries that give one key {SATURATED:.0%} or more, unscaled, d = {width}"
    keys = f"{mean(rows.effective).mean:.1f} of {KEYS} keys in use"
    return Claim(quote, what, share(rows.saturated), MEANT[words], keys)


def takeaway(scores: dict[int, DotProducts], rows: ByWidth) -> Takeaway:
    """How scores grow with the width, and what dividing does about it."""
    first, last = WIDTHS[0], WIDTHS[-1]
    grown = positive(scores[last].variance / scores[first].variance.mean() / (last / first))
    kept = positive(rows[last][ROOT].effective / rows[first][ROOT].effective.mean())
    left = positive(rows[last][NONE].effective / rows[first][NONE].effective.mean())
    return Takeaway(
        "The variance of q · k is the width d, so wide heads saturate softmax; dividing by √d brings it back to 1.",
        "The variance of q · k does not grow like the width d here, or softmax does not follow it.",
        (
            Evidence(f"growth of Var(q · k) from d = {first} to {last}, over that of d", grown, near(1, EQUAL)),
            Evidence(f"keys in use at d = {last} over those at {first}, {NONE}", left, below(0.5)),
            Evidence(f"keys in use at d = {last} over those at {first}, {ROOT}", kept, near(1, EQUAL)),
        ),
    )


def finding(scores: dict[int, DotProducts], rows: ByWidth) -> str:
    """One sentence, from the numbers."""
    off = max(abs(mean(draws.variance).mean / width - 1) for width, draws in scores.items())
    at_64, keys = share(rows[64][NONE].saturated), mean(rows[64][NONE].effective).mean
    state = SATURATION.verdict(at_64, "not shown to be saturated with this many runs")
    return (
        f"Var(q · k) equals d to {off:.1%}; unscaled softmax is {state} at d = 64 ({keys:.1f} of {KEYS} keys in use, "
        f"{at_64.mean:.0%} of queries give one key {SATURATED:.0%} or more), where ÷ √d leaves "
        f"{mean(rows[64][ROOT].effective).mean:.1f} in use."
    )
