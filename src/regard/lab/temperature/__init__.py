"""temperature: how τ moves attention between one key and all keys, where the named regimes lie, and what τ is for.

Draws are self-attention of 20 random tokens with scores ÷ √d_k, whose variance is 1, as in a layer at initialization.
Learned scores have other variances, and τ acts on them as a change of variance.

The uses that the seed names, in training, at inference and in distillation, are tried on small trained models. The
weights of their one attention are the output (`lab/tasks/matching.py`), so its temperature is also that of the output:
claims about sampling and distillation are about the output's softmax. The best answer is known.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.records import Bars, Cell, Line, Lines, Panel, Picture, Table
from regard.lab.maps import KEYS, attend_statistics, chunks, normal, weights
from regard.lab.report import (
    CONCEPTS,
    Claim,
    DecisionRule,
    Evidence,
    Report,
    Takeaway,
    above,
    below,
    compared,
    quoted,
)
from regard.lab.setting import Setting
from regard.lab.statistics import curve, during, mean, number, positive, share
from regard.lab.temperature.uses import (
    AFTER,
    ASKED,
    CHOICES,
    DRAWN,
    LABELS,
    SOFT,
    TAUGHT,
    TEACHING,
    TEMPERATURES,
    TRAINED,
    Runs,
    differences,
    gain,
    matching,
    scored,
    trained_and_asked,
)
from regard.spec.normalizers import Hard

WIDTH = 64
EXAMPLE, EXAMPLE_TAUS = (2.0, 1.0, 0.5, 0.0, -1.0), (0.25, 0.5, 1.0, 2.0, 5.0)  # scores and τ of a picture
COLDEST = (0.1, 0.03, 0.01, 0.003, 0.001)
ONE_HOT, FLAT = 0.9, 0.9  # a largest weight that is almost all; a share of the keys that is almost all
ALIKE = 0.05  # losses in nats that differ by less are called the same


@dataclass(frozen=True)
class Regime:
    """A named range of τ, the source's row, and a rule that says what it means. At a border both names hold."""

    name: str
    low: float
    high: float
    row: str = ""
    statistic: str = "effective"
    rule: DecisionRule | None = None

    def covers(self, tau: float) -> bool:
        """Whether τ has this name; 1.0 is Normal alone."""
        return self.low <= tau <= self.high and (tau != 1.0 or self.low == self.high)


COLD, WARM = (
    "| 0.5-1.0 | Cold | Sharp, focused | Precise retrieval |",
    "| 1.0-2.0 | Warm | Softer, spread out | Regularization |",
)
VERY_COLD, HOT = (
    "| 0.1-0.5 | Very Cold | Almost one-hot | Hard attention approximation |",
    "| 2.0+ | Hot | Very flat, uniform | Exploration |",
)
REGIMES = (
    Regime("Very Cold", 0.1, 0.5, VERY_COLD, "peak", above(ONE_HOT)),
    Regime("Cold", 0.5, 1.0, COLD, "effective", below(KEYS / 2)),
    Regime("Normal", 1.0, 1.0),
    Regime("Warm", 1.0, 2.0, WARM, "effective", above(KEYS / 2)),
    Regime("Hot", 2.0, 5.0, HOT, "effective", above(FLAT * KEYS)),
)
STATISTICS = {"peak": "largest weight", "effective": f"keys in use of {KEYS}"}


@dataclass(frozen=True)
class TemperatureDraws:
    """One number per draw of 20 queries, each the mean over them; `hard` is the distance to hard attention."""

    entropy: Tensor
    effective: Tensor
    peak: Tensor
    hard: Tensor


ByTemperature = dict[float, TemperatureDraws]


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions = setting.choose(full=400, quick=60)
    generator = setting.generator()
    shapes = [(count, 1, KEYS, WIDTH) for count in chunks(repetitions)]
    draws = [(normal(generator, *shape), normal(generator, *shape)) for shape in shapes]
    by_tau = {tau: measure(draws, tau) for tau in setting.each("τ =", sorted({*TEMPERATURES, *COLDEST}))}
    seeds = setting.seeds(setting.choose(full=4, quick=2), generator)
    problem = matching(setting, setting.seed, 1.0).problem
    new = problem.draw(setting.choose(full=400, quick=100), setting.generator())
    runs = [trained_and_asked(setting, seed, new) for seed in seeds]
    return Report(
        "temperature",
        "How does temperature move attention between a single key and all keys alike, and what is it good for?",
        (*regime_tables(by_tau), *use_tables(runs)),
        (*regime_pictures(by_tau), *use_pictures(runs)),
        finding(by_tau, runs),
        compared(*regime_claims(by_tau), *use_claims(runs)),
        setting.record(repetitions, trainings=len(runs), steps=runs[0].trained[1.0].task.steps),
        why="Temperature is the one knob that makes attention sharp or flat without any training.",
        setup=f"Scores are divided by the temperature τ before softmax. {KEYS} random tokens attend to each other at "
        f"many τ; then small models learn which of {CHOICES} keys a noisy query shows, with a τ of their own or one "
        "that is changed afterwards. A student is a model that learns from the answers of a trained one, its teacher.",
        takeaway=takeaway(by_tau),
    )


def measure(draws: list[tuple[Tensor, Tensor]], tau: float) -> TemperatureDraws:
    """The same draws at this temperature, and how far they are from hard attention."""
    parts = []
    for query, key in draws:
        value = torch.eye(KEYS, dtype=query.dtype).expand(len(query), 1, -1, -1)
        soft, statistics = attend_statistics(query, key, value, "entropy", "peak", temperature=tau)
        apart = (soft - weights(query, key, normalizer=Hard(), engine="tiled")).abs().sum(-1) / 2
        rows = (statistics["entropy"], statistics["entropy"].exp(), statistics["peak"], apart)
        parts.append([each.mean((1, 2)) for each in rows])
    return TemperatureDraws(*(torch.cat(part) for part in zip(*parts, strict=True)))


def names(tau: float) -> str:
    """The regimes a temperature belongs to."""
    return " / ".join(regime.name for regime in REGIMES if regime.covers(tau))


def regime_tables(by_tau: ByTemperature) -> tuple[Table, Table]:
    """Entropy, effective keys and peak at each temperature, and the limit τ → 0, where softmax is hard attention."""
    rows: list[tuple[Cell, ...]] = []
    for tau in TEMPERATURES:
        draws = by_tau[tau]
        rows.append((f"{tau:g}", names(tau), positive(draws.entropy), positive(draws.effective), share(draws.peak)))
    title = f"{KEYS} keys, d_k = {WIDTH}, scores ÷ √d_k ÷ τ; mean and 95% interval"
    limit = [(f"{tau:g}", share(by_tau[tau].hard), positive(by_tau[tau].effective)) for tau in COLDEST]
    return (
        Table(("τ", "regime", "entropy (nats)", "keys e^H", "peak"), rows, title),
        Table(("τ", "share of weight misplaced", "keys e^H"), limit, "Distance to hard attention, normalizer=Hard()"),
    )


def weight_picture() -> Bars:
    """The weights of five scores at several τ."""
    scores = torch.tensor(EXAMPLE, dtype=torch.float64)
    series = {
        f"τ = {tau:g}": [round(weight, 3) for weight in (scores / tau).softmax(0).tolist()] for tau in EXAMPLE_TAUS
    }
    return Bars([f"score {score:g}" for score in EXAMPLE], series, "weight", "Weights of the same scores at several τ")


def takeaway(by_tau: ByTemperature) -> Takeaway:
    """What τ does."""
    low, high = 0.01, TEMPERATURES[-1]
    return Takeaway(
        "A low τ lets a query look at almost one key, a high τ at almost all.",
        "τ does not reach from one key to all keys here.",
        (
            Evidence(f"largest weight at τ = {low:g}", share(by_tau[low].peak), above(ONE_HOT)),
            Evidence(f"share of {KEYS} keys in use at τ = {high:g}", share(by_tau[high].effective / KEYS), above(FLAT)),
        ),
    )


def regime_pictures(by_tau: ByTemperature) -> tuple[Picture, ...]:
    """Weights at several τ with the effective number of keys, and the largest weight down to the limit."""
    every = sorted(by_tau)
    keys = curve("", TEMPERATURES, [mean(by_tau[tau].effective) for tau in TEMPERATURES])
    peak = curve("largest weight", every, [share(by_tau[tau].peak) for tau in every])
    apart = curve("distance to hard", every, [share(by_tau[tau].hard) for tau in every])
    in_use = Lines([keys], "τ", "effective keys e^H", f"Keys in use, of {KEYS}", log_x=True)
    limit = Lines([peak, apart], "τ", "share of the weight", "Toward hard attention", log_x=True)
    return Panel((weight_picture(), in_use)), limit


def use_tables(runs: Runs) -> tuple[Table, ...]:
    """Models trained with τ, the model of τ = 1 at another τ, and students by what they learn from."""
    training: list[tuple[Cell, ...]] = []
    for tau in TRAINED:
        factor, moves = gain(runs, tau), _size(max(each.moved[tau] for each in runs))
        results = (scored(runs, AFTER, tau, name) for name in ("loss", "right"))
        training.append((f"{tau:g}", *results, factor, factor.mean / tau, moves))
    best = positive([each.best.loss for each in runs]), share([each.best.right for each in runs])
    training.append(("best possible", *best, "τ", 1.0, ""))
    names = ("loss", "right", "weight", "different")
    asked: list[tuple[Cell, ...]] = [
        (f"{tau:g}", *(scored(runs, ASKED, tau, name) for name in names)) for tau in TEMPERATURES
    ]
    students: list[tuple[Cell, ...]] = []
    for soft in SOFT:
        source = "right answers" if soft == LABELS else f"teacher, τ = {soft:g}"
        keys = positive([each.target_keys[soft] for each in runs])
        students.append((source, keys, *(scored(runs, TAUGHT, soft, name) for name in ("loss", "right"))))
    students.append(("(the teacher)", "", *(scored(runs, ASKED, 1.0, name) for name in ("loss", "right"))))
    return (
        Table(
            ("τ", "loss", "right", "gain of W_Q and W_K", "gain ÷ τ", "τ · W_Q moves outputs by"),
            training,
            f"Trained with τ to find which of {CHOICES} keys a noisy query shows; mean and 95% interval over "
            f"{len(runs)} trainings",
        ),
        Table(
            ("τ", "loss", "right", "weight on it", f"different in {DRAWN} draws"),
            asked,
            "The model trained with τ = 1, asked at another τ",
        ),
        Table(
            ("learns from", "keys in a target", "loss", "right"),
            students,
            f"Students that see {TEACHING * CHOICES} examples, over and over; asked new ones",
        ),
    )


def _size(difference: float) -> str:
    return f"{difference:.0e}" if difference else "0"


def use_pictures(runs: Runs) -> tuple[Picture, ...]:
    """Training, inference and distillation."""
    losses = [during([each.trained[tau] for each in runs], "new examples", f"τ = {tau:g}") for tau in TRAINED]
    gains = [curve("learned", TRAINED, [gain(runs, tau) for tau in TRAINED]), Line("best", TRAINED, TRAINED)]
    new = Lines(losses, "step", "loss (nats)", "New examples")
    factors = Lines(gains, "τ of the training", "gain", "W_Q and W_K make up for τ")
    training = Panel((new, factors), f"Trained with τ, mean and range of {len(runs)} runs")
    loss = Lines([_curve(runs, "loss")], "τ", "loss (nats)", "Trained with τ = 1, asked at τ: loss", log_x=True)
    key = Lines([_curve(runs, "right"), _curve(runs, "weight")], "τ", "share", "The right key", log_x=True)
    sampling = Lines([_curve(runs, "different")], "τ", "keys", f"Different keys in {DRAWN} draws", log_x=True)
    series = {"right, new examples": [scored(runs, TAUGHT, soft, "right").mean for soft in SOFT]}
    labels = ["answers" if soft == LABELS else f"τ = {soft:g}" for soft in SOFT]
    students = Bars(labels, series, "share", f"Students of {TEACHING * CHOICES} examples")
    return training, Panel((loss, key)), Panel((sampling, students))


def _curve(runs: Runs, name: str) -> Line:
    names = {"right": "largest weight", "weight": "weight on it"}
    return curve(names.get(name, ""), TEMPERATURES, [scored(runs, ASKED, tau, name) for tau in TEMPERATURES])


def regime_claims(by_tau: ByTemperature) -> tuple[Claim, ...]:
    """Each named regime, tested at the coldest and the hottest temperature that it alone covers."""
    listed = []
    for regime in REGIMES:
        if regime.rule is None:  # τ = 1 is the definition of "normal"
            continue
        taus = [tau for tau in TEMPERATURES if regime.covers(tau)]
        for tau in (taus[0], taus[-1]):
            here = positive(getattr(by_tau[tau], regime.statistic))
            what = f"{STATISTICS[regime.statistic]} at τ = {tau:g}"
            listed.append(Claim(quoted(CONCEPTS, regime.row), what, here, regime.rule))
    return tuple(listed)


def use_claims(runs: Runs) -> tuple[Claim, ...]:
    """When to use which temperature."""
    others = number(
        [
            each.scores[AFTER][1.0].loss - min(each.scores[AFTER][tau].loss for tau in TRAINED if tau != 1.0)
            for each in runs
        ]
    )
    ratio = positive([each.gain[TRAINED[-1]] / each.gain[TRAINED[0]] for each in runs])
    focused, cost = (differences(runs, ASKED, name, 0.7, 1.0) for name in ("weight", "loss"))
    output = "meant of the output's softmax, which this model's attention is"
    keys = f"different keys in {DRAWN} draws"
    undone = f"× {TRAINED[-1] / TRAINED[0]:g} would undo it wholly; on this task training makes up for τ"
    return (
        Claim(
            quoted(CONCEPTS, "| Training | 1.0 (standard) |"),
            f"loss after training with τ = 1, less the lowest with τ = {_row([t for t in TRAINED if t != 1], 'g')}",
            others,
            below(ALIKE),
            "on this one task the others train as well",
        ),
        Claim(
            quoted(CONCEPTS, WARM),
            f"gain of W_Q and W_K trained with τ = {TRAINED[-1]:g} over that with τ = {TRAINED[0]:g}",
            ratio,
            DecisionRule(((2.0, "confirmed"), (math.inf, "corrected"))),
            undone,
        ),
        Claim(
            quoted(CONCEPTS, "| Inference (focused) | 0.7-1.0 |"),
            "weight on the right key at τ = 0.7 less that at 1",
            focused,
            above(0),
            f"the answers stay the same, and the loss changes by {cost.mean:+.3f} nats",
        ),
        Claim(
            quoted(CONCEPTS, COLD),
            "weight on the right key at τ = 0.5 less that at 1",
            differences(runs, ASKED, "weight", 0.5, 1.0),
            above(0),
        ),
        Claim(
            quoted(CONCEPTS, "| Sampling (diverse) | 1.0-1.5 |"),
            f"{keys} at τ = 1.5 less those at 1",
            differences(runs, ASKED, "different", 1.5, 1.0),
            above(0),
            output,
        ),
        Claim(
            quoted(CONCEPTS, HOT),
            f"{keys} at τ = 5 less those at 2",
            differences(runs, ASKED, "different", 5.0, 2.0),
            above(0),
            output,
        ),
        Claim(
            quoted(CONCEPTS, "| Knowledge distillation | 2.0+ |"),
            "loss of students of a teacher at τ = 1, less that of students at τ = 2",
            differences(runs, TAUGHT, "loss", 1.0, 2.0),
            above(0),
            output,
        ),
    )


def _row(numbers: list[float] | tuple[float, ...], form: str = ".2f") -> str:
    return ", ".join(format(each, form) for each in numbers)


def finding(by_tau: ByTemperature, runs: Runs) -> str:
    """Sentences, from the numbers."""
    low, high = TEMPERATURES[0], TEMPERATURES[-1]
    keys = {tau: mean(by_tau[tau].effective).mean for tau in (low, 0.5, 1.0, high)}
    losses = [scored(runs, AFTER, tau, "loss").mean for tau in TRAINED]
    gains = [gain(runs, tau).mean for tau in TRAINED]
    students = {soft: f"{scored(runs, TAUGHT, soft, 'right').mean:.0%}" for soft in SOFT}
    better = above(0).verdict(differences(runs, TAUGHT, "loss", 1.0, 2.0)) == "confirmed"
    distilled = "" if better else " (that τ = 2 teaches better than τ = 1 is not shown with this many runs)"
    return (
        f"From τ = {low:g} to {high:g} a query goes from {keys[low]:.1f} to {keys[high]:.1f} of {KEYS} keys in use; "
        f"τ = 0.5 still uses {keys[0.5]:.1f}. On this task a model undoes the τ it trains with: trained with τ = "
        f"{_row(TRAINED, 'g')} the gain of W_Q and W_K is {_row(gains)} and the loss {_row(losses)}. After training, τ "
        f"makes answers sharper or more diverse; students of {TEACHING * CHOICES} examples are right "
        f"{students[LABELS]} of the time if they see answers, and {students[1.0]}, {students[2.0]} and {students[4.0]} "
        f"if they see a teacher at τ = 1, 2 and 4{distilled}."
    )
