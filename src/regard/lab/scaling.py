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
from regard.lab.report import (
    RESULTS,
    Claim,
    DecisionRule,
    Evidence,
    Report,
    Takeaway,
    above,
    below,
    compared,
    near,
    quoted,
    within,
)
from regard.lab.setting import Setting
from regard.lab.statistics import curve, mean, placement, positive, share
from regard.spec.scores import Dot, ScaledDot, Score

WIDTHS = (8, 32, 64, 128, 256, 512)
NONE, ROOT, WHOLE = "unscaled", "÷ √d_k", "÷ d_k"
SCALINGS: dict[str, Callable[[int], Score]] = {
    NONE: lambda width: Dot(),
    ROOT: lambda width: ScaledDot(),
    WHOLE: lambda width: ScaledDot(1 / width),
}
ROWS = {
    8: "| 8    | 1.50             | 2.65           |",
    32: "| 32   | 0.51             | 2.55           |",
    64: "| 64   | 0.42             | 2.54           |",
    128: "| 128  | 0.25             | 2.51           |",
    256: "| 256  | 0.13             | 2.54           |",
    512: "| 512  | 0.07             | 2.56           |",
}
PRINTED = {name: [float(row.split("|")[column]) for row in ROWS.values()] for name, column in ((NONE, 2), (ROOT, 3))}
ONE_DRAW = within(0.025, 0.975)  # a figure that 95 % of single draws could have given
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
        (*pictures(by_width, generator), histograms(generator, setting.choose(full=200, quick=50))),
        finding(by_width),
        compared(*claims(by_width)),
        setting.record(repetitions),
        why="Every Transformer divides its scores by √d_k; without a reason this looks like a detail.",
        setup=f"{KEYS} random tokens attend to each other, with queries and keys of {WIDTHS[0]} to {WIDTHS[-1]} "
        "numbers. The entropy of a row of weights says over how many keys a query spreads: 0 for one key, ln 20 for "
        "all alike. One such attention is a draw; many draws give the intervals.",
        takeaway=takeaway(by_width),
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
    return {name: [positive(getattr(by_width[width][name], statistic)) for width in WIDTHS] for name in SCALINGS}


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


def histograms(generator: torch.Generator, repetitions: int) -> Picture:
    """How scores are distributed at three widths, as they are and ÷ √d_k, on one axis."""
    widths, bins = (8, 64, 512), 64
    wide, narrow = (torch.linspace(-end, end, bins + 1, dtype=torch.float64) for end in (48, 4))
    panels: dict[str, list[Line]] = {NONE: [], ROOT: []}
    for width in widths:
        query, key = (normal(generator, repetitions, KEYS, width) for _ in range(2))
        scores = (query @ key.mT).flatten()
        for name, each, cuts in ((NONE, scores, wide), (ROOT, scores / math.sqrt(width), narrow)):
            counts = torch.histogram(each, cuts).hist
            density = counts / len(each) / float(cuts[1] - cuts[0])
            middles = ((cuts[1:] + cuts[:-1]) / 2).tolist()
            panels[name].append(Line(f"d_k = {width}", middles, density.tolist()))
    return Panel(
        (
            Lines(panels[NONE], "q · k", "density", "Scores as they are: wider and wider", histogram=True),
            Lines(panels[ROOT], "q · k / √d_k", "density", "Divided by √d_k: the same at every width", histogram=True),
        )
    )


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
    for width, row in ROWS.items():
        for name, figure in zip(PRINTED, row.split("|")[2:4], strict=True):
            draws = by_width[width][name].entropy
            what = f"share of single draws with less than {figure.strip()}, {name}, d_k = {width}"
            note = f"mean of the draws: {mean(draws).mean:.2f}"
            listed.append(Claim(quoted(RESULTS, row), what, placement(float(figure), draws), ONE_DRAW, note))
    first, last = (by_width[width][NONE].entropy for width in (WIDTHS[0], WIDTHS[-1]))
    ratio, what = positive(last / first.mean()), f"unscaled entropy at d_k = {WIDTHS[-1]} over that at {WIDTHS[0]}"
    listed.append(Claim(quoted(RESULTS, "Entropy CRASHES as dimension increases"), what, ratio, below(0.5)))
    scaled = [mean(by_width[width][ROOT].entropy).mean for width in WIDTHS]
    spread, what = (max(scaled) - min(scaled)) / min(scaled), "relative spread of the scaled entropy over all widths"
    listed.append(Claim(quoted(RESULTS, "Entropy stays stable"), what, spread, below(0.05)))
    what = f"share of queries with a weight ≥ {ONE_HOT} at d_k = {DRAWN}, unscaled"
    position = quoted(RESULTS, "Almost all weight on position 5 (~100%)")
    one_hot = share(by_width[DRAWN][NONE].one_hot)
    rule = DecisionRule(((0.1, "corrected"), (0.9, "partly"), (math.inf, "confirmed")))
    listed.append(Claim(position, what, one_hot, rule, "true of one query in two; which position is chance"))
    return (*listed, *_vanishing(by_width))


def _vanishing(by_width: ByWidth) -> tuple[Claim, ...]:
    """Gradients of the widest draws. Those of the query differ between the median and the mean query."""
    statistics = {
        "∂out/∂score at the median key": "others",
        "∂out/∂query of the median query": "query",
        "∂out/∂query, mean over the queries": "query_mean",
    }
    quote = quoted(RESULTS, "Gradients vanish for non-dominant positions. The model can't learn!")
    rule = DecisionRule(((VANISHED, "confirmed"), (1.0, "partly"), (math.inf, "corrected")))
    listed = []
    for what, statistic in statistics.items():
        unscaled, scaled = (getattr(by_width[WIDTHS[-1]][name], statistic) for name in (NONE, ROOT))
        ratio = positive(unscaled / scaled.mean())
        listed.append(Claim(quote, f"unscaled over scaled {what}, d_k = {WIDTHS[-1]}", ratio, rule))
    return tuple(listed)


def takeaway(by_width: ByWidth) -> Takeaway:
    """What dividing by √d_k is for."""
    first, last = (by_width[width] for width in (WIDTHS[0], WIDTHS[-1]))
    unscaled, scaled = (positive(last[name].entropy / first[name].entropy.mean()) for name in (NONE, ROOT))
    flat = share(last[WHOLE].entropy / math.log(KEYS))
    wide = f"entropy at d_k = {WIDTHS[-1]} over that"
    return Takeaway(
        "Without division, wider heads put all weight on one key; ÷ √d_k keeps the spread of the weights the same at "
        "every width, and ÷ d_k makes them flat.",
        "Dividing by √d_k does not keep the spread of the weights the same at every width here.",
        (
            Evidence(f"{wide} at {WIDTHS[0]}, {NONE}", unscaled, below(0.5)),
            Evidence(f"{wide} at {WIDTHS[0]}, {ROOT}", scaled, near(1, 0.1)),
            Evidence(f"{wide} of equal weights, {WHOLE}", flat, above(0.99)),
        ),
    )


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
