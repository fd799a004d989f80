"""scaling: entropy and gradients of random attention against d_k, with scores as they are, ÷ √d_k and ÷ d_k.

A draw is one self-attention of 20 random tokens: 20 queries over 20 keys, all components standard normal. Its
entropy is the mean over its queries. Repeating draws gives intervals; the source's single draw is placed among them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.records import Bars, Estimate, Line, Lines, Panel, Picture, Table
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
    """One number per draw. Gradients are those of the median query, for one random value per key."""

    entropy: Tensor  # mean over the queries
    spread: Tensor  # standard deviation of the entropy over the queries
    one_hot: Tensor  # share of the queries
    scores: Tensor  # norm of ∂out/∂scores
    others: Tensor  # |∂out/∂score| at the median key
    query: Tensor  # norm of ∂out/∂query
    query_mean: Tensor  # the same, mean over the queries


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
        tables(by_width),
        pictures(by_width, generator),
        finding(by_width),
        (Compared(f"{RESULTS}, Experiment 1", claims(by_width)),),
        setting.record(repetitions),
    )


def measure(generator: torch.Generator, width: int, score: Score, repetitions: int) -> ScalingDraws:
    """Draw that many self-attentions of this width, and their entropies and gradients."""
    parts = [_draw(generator, width, score, count) for count in chunks(repetitions)]
    return ScalingDraws(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _draw(generator: torch.Generator, width: int, score: Score, count: int) -> tuple[Tensor, ...]:
    query = normal(generator, count, 1, KEYS, width).requires_grad_()
    key, value = normal(generator, count, 1, KEYS, width), normal(generator, count, 1, KEYS, 1)
    # a bias of zeros is added to the scores, so its gradient is theirs
    scores = torch.zeros(count, 1, KEYS, KEYS, dtype=query.dtype, requires_grad=True)
    out, statistics = attend_statistics(query, key, value, "entropy", "peak", score=score, bias=scores)
    gradients = torch.autograd.grad(out.sum(), (scores, query))
    to_scores, to_query = (gradient.norm(dim=-1).flatten(1) for gradient in gradients)
    to_others = gradients[0].abs().median(-1).values.flatten(1)
    entropy, peak = statistics["entropy"].flatten(1), statistics["peak"].flatten(1)
    return (
        entropy.mean(1),
        entropy.std(1),
        (peak >= ONE_HOT).double().mean(1),
        to_scores.median(1).values,
        to_others.median(1).values,
        to_query.median(1).values,
        to_query.mean(1),
    )


def estimates(by_width: ByWidth, statistic: str) -> dict[str, list[Estimate]]:
    """A statistic at every width, by scaling."""
    return {name: [mean(getattr(by_width[width][name], statistic)) for width in WIDTHS] for name in SCALINGS}


def tables(by_width: ByWidth) -> tuple[Table, ...]:
    """The source's table of entropies with intervals and a third column, and the gradients of scores and queries."""
    medians, means = estimates(by_width, "query"), estimates(by_width, "query_mean")
    columns = {
        f"Entropy in nats over {KEYS} keys (uniform: {math.log(KEYS):.3f}), mean and 95% interval": estimates(
            by_width, "entropy"
        ),
        "Norm of ∂out/∂scores, for the median of the 20 queries": estimates(by_width, "scores"),
        "Norm of ∂out/∂query, for the median and the mean of the 20 queries": {
            f"{name}, {which}": cells[name]
            for name in (NONE, ROOT)
            for which, cells in (("median", medians), ("mean", means))
        },
    }
    return tuple(
        Table(("d_k", *cells), list(zip(WIDTHS, *cells.values(), strict=True)), title)
        for title, cells in columns.items()
    )


def pictures(by_width: ByWidth, generator: torch.Generator) -> tuple[Picture, ...]:
    """Entropy against d_k with the source's points, the weights of one query, and gradients against d_k."""
    entropies, gradients = (
        [curve(name, WIDTHS, cells) for name, cells in estimates(by_width, statistic).items()]
        for statistic in ("entropy", "scores")
    )
    entropies += [Line(f"seed, {name}", WIDTHS, figures) for name, figures in PRINTED.items()]
    entropy = Lines(entropies, "d_k", "entropy (nats)", f"Entropy over {KEYS} keys", log_x=True)
    title = "Gradient of the median query"
    gradient = Lines(gradients, "d_k", "norm of ∂out/∂scores", title, log_x=True, log_y=True)
    return Panel((entropy, typical_weights(generator))), gradient


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
    listed = []
    for name, figures in PRINTED.items():
        for width, figure in zip(WIDTHS, figures, strict=True):
            draws = by_width[width][name].entropy
            quantile = placement(figure, draws)
            verdict = "confirmed as one draw" if 0.025 <= quantile <= 0.975 else "not confirmed"
            says = f"{name} entropy, d_k = {width}"
            listed.append(Claim(says, f"{figure:.2f}", mean(draws), f"{verdict}: quantile {quantile:.2f}"))
    share = mean(by_width[DRAWN][NONE].one_hot)
    verdict = f"{confirmed(share.mean > 0.9, 'corrected')}: share of queries with a weight ≥ {ONE_HOT}"
    one_hot = Claim(f"d_k = {DRAWN}: one key takes all", "~100 %", share, verdict)
    return (*listed, _spread(by_width), one_hot, *_vanishing(by_width))


def _spread(by_width: ByWidth) -> Claim:
    """Whether the printed figures spread like means over 20 queries or like single queries."""
    printed = float(torch.tensor(PRINTED[ROOT]).std())
    draw = float(torch.stack([by_width[width][ROOT].entropy.std() for width in WIDTHS]).mean())
    query = float(torch.stack([by_width[width][ROOT].spread.mean() for width in WIDTHS]).mean())
    like = f"means of {KEYS} queries" if abs(printed - draw) < abs(printed - query) else "single queries"
    return Claim(f"{ROOT} entropy, spread", f"{printed:.3f}", draw, f"not said: it fits {like} (1: {query:.2f})")


def _vanishing(by_width: ByWidth) -> tuple[Claim, ...]:
    """Gradients of the widest draws. Those of the query differ between the median and the mean query."""
    statistics = {
        "∂out/∂score of most keys": "others",
        "∂out/∂query, median query": "query",
        "∂out/∂query, mean query": "query_mean",
    }
    listed = []
    for says, statistic in statistics.items():
        by_scaling = estimates(by_width, statistic)
        unscaled, scaled = by_scaling[NONE][-1], by_scaling[ROOT][-1]
        ratio = unscaled.mean / scaled.mean
        if unscaled.low <= scaled.high and scaled.low <= unscaled.high:
            verdict = "corrected: no other than scaled"
        elif ratio > 1:
            verdict = f"corrected: {ratio:.2g} times larger than scaled"
        else:
            verdict = f"{confirmed(ratio < VANISHED, 'partly')}: {1 / ratio:.2g} times smaller than scaled"
        listed.append(Claim(says, "vanishes", unscaled, verdict))
    return tuple(listed)


def finding(by_width: ByWidth) -> str:
    """One sentence, from the numbers."""
    entropy = {name: [each.mean for each in cells] for name, cells in estimates(by_width, "entropy").items()}
    first, last = entropy[NONE][0], entropy[NONE][-1]
    spread = (max(entropy[ROOT]) - min(entropy[ROOT])) / min(entropy[ROOT])
    scaled, unscaled = (mean(by_width[WIDTHS[-1]][name].scores).mean for name in (ROOT, NONE))
    return (
        f"From d_k = {WIDTHS[0]} to {WIDTHS[-1]} the unscaled entropy "
        f"{'falls' if last < first else 'rises'} from {first:.2f} to {last:.2f} nats, ÷ √d_k keeps it within "
        f"{spread:.1%}, and ÷ d_k flattens it to {math.exp(entropy[WHOLE][-1]):.2f} of {KEYS} keys; "
        f"at the end the scaled gradient of the median query is {scaled / unscaled:,.0f} times the unscaled one."
    )
