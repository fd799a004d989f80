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
from regard.lab.report import CONCEPTS, SCORE_FUNCTIONS, Claim, Compared, Report, confirmed
from regard.lab.scaling import NONE, ROOT, SCALINGS, WHOLE
from regard.lab.setting import Setting
from regard.lab.statistics import curve, mean

WIDTHS = (16, 64, 256, 512)
PAIRS = 1000  # independent pairs of one repetition
DEVIATION = 2.0  # standard deviation of the components in the counter-example: variance 4
SATURATED = 0.9  # a query is called saturated when one key takes this share
RANGES = {16: 8, 64: 16, 256: 32, 512: 45}
BEHAVIORS = {16: "somewhat smooth", 64: "starting to saturate", 256: "heavily saturated", 512: "nearly one-hot"}
# the share of saturated queries that each word is taken to mean: from, and below
MEANT = {
    "works OK": (0.0, 0.05),
    "somewhat smooth": (0.0, 0.05),
    "starting to saturate": (0.05, 1 / 3),
    "heavily saturated": (0.5, 1.01),
    "saturates": (0.5, 1.01),
    "nearly one-hot": (0.75, 1.01),
}
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
        (
            Compared(f"{CONCEPTS}, section 1", concept_claims(scores, rows)),
            Compared(f"{SCORE_FUNCTIONS}, Why scaling matters", chapter_claims(scores, rows, wide)),
        ),
        setting.record(repetitions),
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
        [(width, *map(mean, (draws.variance, draws.low, draws.high, draws.inside))) for width, draws in scores.items()],
        "Dot products of standard normal vectors, mean and 95% interval",
    )
    keys = Table(
        ("d", *(f"keys, {name}" for name in SCALINGS), f"weight ≥ {SATURATED}"),
        [
            (width, *(mean(draws[name].effective) for name in SCALINGS), mean(draws[NONE].saturated))
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


def concept_claims(scores: dict[int, DotProducts], rows: ByWidth) -> tuple[Claim, ...]:
    """The table of dimensions, ranges and behaviors."""
    listed = []
    for width in WIDTHS:
        draws = scores[width]
        # four intervals of 95 % miss one time in five; these are wide enough to miss one time in a hundred
        wide = mean(draws.variance, confidence=1 - 0.01 / len(WIDTHS))
        verdict = f"{confirmed(wide.low <= width <= wide.high)}, ratio {wide.mean / width:.4f}"
        listed.append(Claim(f"Var(q · k), d = {width}", width, mean(draws.variance), verdict))
        inside = mean(draws.inside).mean
        verdict = f"{_ranged(inside)}: holds {inside:.1%}"
        listed.append(Claim(f"range, d = {width}", f"±{RANGES[width]}", mean(draws.high), verdict))
        listed.append(_behavior(width, BEHAVIORS[width], rows[width][NONE]))
    flat = mean(rows[WIDTHS[-1]][WHOLE].effective)
    verdict = f"{confirmed(flat.mean > FLAT * KEYS)}: of {KEYS}"
    listed.append(Claim(f"keys in use, ÷ d, d = {WIDTHS[-1]}", "too flat", f"{flat.mean:.2f}", verdict))
    return tuple(listed)


def _ranged(inside: float) -> str:
    return "confirmed as ±2√d" if 0.93 < inside < 0.97 else "not confirmed"


def chapter_claims(scores: dict[int, DotProducts], rows: ByWidth, wide: DotProducts) -> tuple[Claim, ...]:
    """The two rows of the other document, and the condition it leaves out."""
    variance = mean(wide.variance)
    independence = confirmed(variance.low <= 64 <= variance.high, "corrected: only of unit variance, here 4")
    return (
        Claim("range, d = 64", "±16", mean(scores[64].high), _ranged(mean(scores[64].inside).mean)),
        _behavior(64, "works OK", rows[64][NONE]),
        Claim("range, d = 512", "±45", mean(scores[512].high), _ranged(mean(scores[512].inside).mean)),
        _behavior(512, "saturates", rows[512][NONE]),
        Claim("independence gives Var = d", "64 at d = 64", variance, independence),
    )


def _behavior(width: int, words: str, rows: SaturationDraws) -> Claim:
    """A description of a width, compared with the share of saturated queries."""
    saturated = mean(rows.saturated).mean
    low, high = MEANT[words]
    verdict = f"{confirmed(low <= saturated < high, 'corrected')}: {saturated:.0%} of queries saturated"
    return Claim(f"keys in use, d = {width}", words, mean(rows.effective), verdict)


def finding(scores: dict[int, DotProducts], rows: ByWidth) -> str:
    """One sentence, from the numbers."""
    off = max(abs(mean(draws.variance).mean / width - 1) for width, draws in scores.items())
    at_64, keys = mean(rows[64][NONE].saturated).mean, mean(rows[64][NONE].effective).mean
    verdict = "saturated" if at_64 >= 0.5 else "partly saturated" if at_64 >= 0.1 else "not saturated"
    return (
        f"Var(q · k) equals d to {off:.1%}; unscaled softmax is {verdict} at d = 64 already ({keys:.1f} of {KEYS} keys "
        f"in use, {at_64:.0%} of queries give one key {SATURATED:.0%} or more), where ÷ √d leaves "
        f"{mean(rows[64][ROOT].effective).mean:.1f} in use."
    )
