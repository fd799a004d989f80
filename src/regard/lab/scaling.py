"""scaling: entropy and gradients of random attention against d_k, with scores as they are, ÷ √d_k and ÷ d_k.

A draw is one self-attention of 20 random tokens: 20 queries over 20 keys, all components standard normal. Its
entropy is the mean over its queries. Repeating draws gives intervals; the source's single draw is placed among them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.records import Bars, Cell, Estimate, Line, Lines, Panel, Picture, Table
from regard.lab.maps import KEYS, attend_statistics, chunks, normal, weights
from regard.lab.report import RESULTS, Claim, Compared, Report, confirmed
from regard.lab.setting import Setting
from regard.lab.statistics import curve, mean, placement
from regard.spec.scores import Dot, ScaledDot, Score

WIDTHS = (8, 32, 64, 128, 256, 512)
NONE, ROOT, WHOLE = "unscaled", "÷ √d_k", "÷ d_k"
SCALINGS: dict[str, Callable[[int], Score]] = {
    NONE: lambda width: Dot(),
    ROOT: lambda width: ScaledDot(),
    WHOLE: lambda width: ScaledDot(1 / width),
}
PRINTED = {NONE: (1.50, 0.51, 0.42, 0.25, 0.13, 0.07), ROOT: (2.65, 2.55, 2.54, 2.51, 2.54, 2.56)}
DRAWN = 256  # the width whose weights are drawn
HEAVIEST = 10  # keys drawn one by one
ONE_HOT = 0.995  # a weight that rounds to 100 %
VANISHED = 0.01  # a share of the scaled gradient that is next to nothing


@dataclass(frozen=True)
class ScalingDraws:
    """One number per draw. Entropy: mean and spread over its queries. One-hot: share of its queries.

    `scores` is the norm of ∂out/∂scores, `others` its size at the median key, `query` the norm of ∂out/∂query, for one
    random value per key: all of the median query, and `query_mean` of the mean query.
    """

    entropy: Tensor
    spread: Tensor
    one_hot: Tensor
    scores: Tensor
    others: Tensor
    query: Tensor
    query_mean: Tensor


ByWidth = dict[int, dict[str, ScalingDraws]]


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions = setting.choose(full=1000, quick=100)
    generator = setting.generator()
    by_width = {
        width: {name: measure(generator, width, score(width), repetitions) for name, score in SCALINGS.items()}
        for width in setting.each("d_k =", WIDTHS)
    }
    return Report(
        "scaling",
        "Why are scores divided by √d_k, and not left alone or divided by d_k?",
        (entropies(by_width), score_gradients(by_width), query_gradients(by_width)),
        (Panel((entropy_curves(by_width), typical_weights(generator))), gradient_curves(by_width)),
        finding(by_width),
        (Compared(f"{RESULTS}, Experiment 1", claims(by_width)),),
        setting.record(repetitions),
    )


def measure(generator: torch.Generator, width: int, score: Score, repetitions: int) -> ScalingDraws:
    """Draw that many self-attentions of this width and look at each."""
    parts = [_some(generator, width, score, count) for count in chunks(repetitions)]
    return ScalingDraws(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _some(generator: torch.Generator, width: int, score: Score, count: int) -> tuple[Tensor, ...]:
    query = normal(generator, count, 1, KEYS, width).requires_grad_()
    key, value = normal(generator, count, 1, KEYS, width), normal(generator, count, 1, KEYS, 1)
    # a bias of zeros stands where the scores are: its gradient is theirs
    scores = torch.zeros(count, 1, KEYS, KEYS, dtype=query.dtype, requires_grad=True)
    out, seen = attend_statistics(query, key, value, "entropy", "peak", score=score, bias=scores)
    gradients = torch.autograd.grad(out.sum(), (scores, query))
    to_scores, to_query = (gradient.norm(dim=-1).flatten(1) for gradient in gradients)
    to_others = gradients[0].abs().median(-1).values.flatten(1)
    entropy, peak = seen["entropy"].flatten(1), seen["peak"].flatten(1)
    return (
        entropy.mean(1),
        entropy.std(1),
        (peak >= ONE_HOT).double().mean(1),
        to_scores.median(1).values,
        to_others.median(1).values,
        to_query.median(1).values,
        to_query.mean(1),
    )


def entropies(by_width: ByWidth) -> Table:
    """The table of the source, with intervals and a third column."""
    rows: list[tuple[Cell, ...]] = [
        (width, *(mean(by_width[width][name].entropy) for name in SCALINGS)) for width in WIDTHS
    ]
    title = f"Entropy in nats over {KEYS} keys (uniform: {math.log(KEYS):.3f}), mean and 95% interval"
    return Table(("d_k", *SCALINGS), rows, title)


def score_gradients(by_width: ByWidth) -> Table:
    """What reaches the scores."""
    rows: list[tuple[Cell, ...]] = [
        (width, *(mean(by_width[width][name].scores) for name in SCALINGS)) for width in WIDTHS
    ]
    return Table(("d_k", *SCALINGS), rows, "Norm of ∂out/∂scores, for the median of the 20 queries")


def query_gradients(by_width: ByWidth) -> Table:
    """What reaches the query: unscaled, the mean hides what happens to most."""
    rows: list[tuple[Cell, ...]] = []
    for width in WIDTHS:
        one, other = by_width[width][NONE], by_width[width][ROOT]
        rows.append((width, *map(mean, (one.query, one.query_mean, other.query, other.query_mean))))
    columns = ("d_k", f"{NONE}, median", f"{NONE}, mean", f"{ROOT}, median", f"{ROOT}, mean")
    return Table(columns, rows, "Norm of ∂out/∂query, for the median and the mean of the 20 queries")


def entropy_curves(by_width: ByWidth) -> Picture:
    """Entropy against d_k, and the source's points."""
    ours = [curve(name, WIDTHS, [mean(by_width[width][name].entropy) for width in WIDTHS]) for name in SCALINGS]
    printed = [Line(f"seed, {name}", WIDTHS, figures) for name, figures in PRINTED.items()]
    return Lines([*ours, *printed], "d_k", "entropy (nats)", f"Entropy over {KEYS} keys", log_x=True)


def gradient_curves(by_width: ByWidth) -> Picture:
    """Gradient of the scores against d_k."""
    ours = [curve(name, WIDTHS, [mean(by_width[width][name].scores) for width in WIDTHS]) for name in SCALINGS]
    return Lines(ours, "d_k", "norm of ∂out/∂scores", "Gradient of the median query", log_x=True, log_y=True)


def typical_weights(generator: torch.Generator) -> Picture:
    """The weights at d_k = 256 of the query whose largest unscaled weight is the median of its draw."""
    query, key = normal(generator, 1, 1, KEYS, DRAWN), normal(generator, 1, 1, KEYS, DRAWN)
    maps = {name: weights(query, key, score=SCALINGS[name](DRAWN))[0, 0] for name in PRINTED}
    row = int(maps[NONE].amax(-1).median(0).indices)
    order = maps[NONE][row].argsort(descending=True)
    first, rest = order[:HEAVIEST].tolist(), order[HEAVIEST:]
    series = {
        name: [round(float(weight), 3) for weight in (*each[row, first], each[row, rest].sum())]
        for name, each in maps.items()
    }
    labels = [*(f"key {key}" for key in first), f"other {len(rest)}"]
    return Bars(labels, series, "weight", f"Weights of one typical query at d_k = {DRAWN}")


def claims(by_width: ByWidth) -> tuple[Claim, ...]:
    """Every printed entropy among the draws, and what the text around the table says."""
    listed = [
        Claim(f"{name} entropy, d_k = {width}", f"{figure:.2f}", mean(draws), _placed(figure, draws))
        for name, figures in PRINTED.items()
        for width, figure in zip(WIDTHS, figures, strict=True)
        for draws in [by_width[width][name].entropy]
    ]
    return (*listed, _spread(by_width), _one_hot(by_width), *_vanishing(by_width))


def _placed(figure: float, draws: Tensor) -> str:
    quantile = placement(figure, draws)
    usual = 0.025 <= quantile <= 0.975
    return f"{'confirmed as one draw' if usual else 'not confirmed'}: quantile {quantile:.2f}"


def _spread(by_width: ByWidth) -> Claim:
    """Whether the printed figures spread like means over 20 queries or like single queries."""
    printed = float(torch.tensor(PRINTED[ROOT]).std())
    draw = float(torch.stack([by_width[width][ROOT].entropy.std() for width in WIDTHS]).mean())
    query = float(torch.stack([by_width[width][ROOT].spread.mean() for width in WIDTHS]).mean())
    like = f"means of {KEYS} queries" if abs(printed - draw) < abs(printed - query) else "single queries"
    return Claim(f"{ROOT} entropy, spread", f"{printed:.3f}", draw, f"not said: it fits {like} (1: {query:.2f})")


def _one_hot(by_width: ByWidth) -> Claim:
    share = mean(by_width[DRAWN][NONE].one_hot)
    verdict = f"{confirmed(share.mean > 0.9, 'corrected')}: share of queries with a weight ≥ {ONE_HOT}"
    return Claim(f"d_k = {DRAWN}: one key takes all", "~100 %", share, verdict)


def _vanishing(by_width: ByWidth) -> tuple[Claim, ...]:
    """Gradients of the widest draws; those of the query tell one story for the median and another for the mean."""
    one, other = by_width[WIDTHS[-1]][NONE], by_width[WIDTHS[-1]][ROOT]
    gradients = {
        "∂out/∂score of most keys": (one.others, other.others),
        "∂out/∂query, median query": (one.query, other.query),
        "∂out/∂query, mean query": (one.query_mean, other.query_mean),
    }
    return tuple(
        Claim(says, "vanishes", mean(unscaled), _compared(mean(unscaled), mean(scaled)))
        for says, (unscaled, scaled) in gradients.items()
    )


def _compared(one: Estimate, other: Estimate) -> str:
    ratio = one.mean / other.mean
    if one.low <= other.high and other.low <= one.high:
        return "corrected: no other than scaled"
    if ratio > 1:
        return f"corrected: {ratio:.2g} times larger than scaled"
    word = confirmed(ratio < VANISHED, "partly")
    return f"{word}: {1 / ratio:.2g} times smaller than scaled"


def finding(by_width: ByWidth) -> str:
    """One sentence, from the numbers."""
    of = {name: [mean(by_width[width][name].entropy).mean for width in WIDTHS] for name in SCALINGS}
    spread = (max(of[ROOT]) - min(of[ROOT])) / min(of[ROOT])
    scaled, unscaled = (mean(by_width[WIDTHS[-1]][name].scores).mean for name in (ROOT, NONE))
    return (
        f"From d_k = {WIDTHS[0]} to {WIDTHS[-1]} the unscaled entropy "
        f"{'falls' if of[NONE][-1] < of[NONE][0] else 'rises'} from {of[NONE][0]:.2f} to {of[NONE][-1]:.2f} nats, "
        f"÷ √d_k keeps it within {spread:.1%}, and ÷ d_k flattens it to {math.exp(of[WHOLE][-1]):.2f} of {KEYS} keys; "
        f"at the end the scaled gradient of the median query is {scaled / unscaled:,.0f} times the unscaled one."
    )
