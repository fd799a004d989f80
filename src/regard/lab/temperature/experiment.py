"""temperature: how τ moves attention between one key and all keys, where the named regimes lie, and what τ is for.

Draws are self-attention of 20 random tokens with scores ÷ √d_k, whose variance is 1, as in a layer at initialization.
Learned scores have other variances, and τ acts on them as a change of variance. The uses are tried on small trained
models (`temperature/uses.py`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.records import Cell, Lines, Panel, Picture, Table
from regard.lab.maps import KEYS, attend_statistics, chunks, normal, weights
from regard.lab.report import CONCEPTS, Claim, Compared, Report
from regard.lab.setting import Setting
from regard.lab.statistics import curve, mean
from regard.lab.temperature import uses
from regard.spec.normalizers import Hard

WIDTH = 64
TEMPERATURES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)
COLDEST = (0.1, 0.03, 0.01, 0.003, 0.001)
ONE_HOT, FLAT = 0.9, 0.9  # a largest weight that is almost all; a share of the keys that is almost all


@dataclass(frozen=True)
class TemperatureRegime:
    """A named range of τ, what the source says of it, and a test of that. At a border both names hold."""

    name: str
    low: float
    high: float
    says: str
    means: str
    test: Callable[[float, float], bool]

    def covers(self, tau: float) -> bool:
        """Whether τ has this name; 1.0 is Normal alone."""
        return self.low <= tau <= self.high and (tau != 1.0 or self.low == self.high)


# tests take the largest weight and the effective number of keys
REGIMES = (
    TemperatureRegime(
        "Very Cold", 0.1, 0.5, "almost one-hot", f"weight ≥ {ONE_HOT}", lambda peak, keys: peak >= ONE_HOT
    ),
    TemperatureRegime("Cold", 0.5, 1.0, "sharp, focused", "keys < half", lambda peak, keys: keys < KEYS / 2),
    TemperatureRegime("Normal", 1.0, 1.0, "default behavior", "some spread", lambda peak, keys: 1 < keys < KEYS),
    TemperatureRegime("Warm", 1.0, 2.0, "softer, spread out", "keys > half", lambda peak, keys: keys > KEYS / 2),
    TemperatureRegime(
        "Hot", 2.0, 5.0, "very flat, uniform", f"keys ≥ {FLAT:.0%}", lambda peak, keys: keys >= FLAT * KEYS
    ),
)


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
    draws = [
        (normal(generator, count, 1, KEYS, WIDTH), normal(generator, count, 1, KEYS, WIDTH))
        for count in chunks(repetitions)
    ]
    every = sorted({*TEMPERATURES, *COLDEST})
    by_tau = {tau: measure(draws, tau) for tau in setting.each("τ =", every)}
    seeds = setting.seeds(setting.choose(full=4, quick=2), generator)
    new = uses.examples(setting, setting.choose(full=400, quick=100))
    runs = [uses.measured(setting, seed, new) for seed in seeds]
    return Report(
        "temperature",
        "How does temperature move attention between a single key and all keys alike, and what is it good for?",
        (
            *tables(by_tau),
            uses.training_table(runs),
            uses.asking_table(runs),
            uses.student_table(runs),
        ),
        (picture(by_tau), *uses.pictures(runs)),
        f"{finding(by_tau)} {uses.finding(runs)}",
        (
            Compared(f"{CONCEPTS}, section 4, Temperature effects", claims(by_tau)),
            Compared(f"{CONCEPTS}, section 4, When to use temperature", uses.claims(runs)),
        ),
        setting.record(repetitions, trainings=len(runs), steps=runs[0].trained[1.0].task.steps),
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


def tables(by_tau: ByTemperature) -> tuple[Table, Table]:
    """Entropy, effective keys and peak at each temperature, and the limit τ → 0, where softmax is hard attention."""
    rows: list[tuple[Cell, ...]] = []
    for tau in TEMPERATURES:
        draws = by_tau[tau]
        rows.append((f"{tau:g}", names(tau), *map(mean, (draws.entropy, draws.effective, draws.peak))))
    title = f"{KEYS} keys, d_k = {WIDTH}, scores ÷ √d_k ÷ τ; mean and 95% interval"
    limit = [(f"{tau:g}", mean(by_tau[tau].hard), mean(by_tau[tau].effective)) for tau in COLDEST]
    return (
        Table(("τ", "regime", "entropy (nats)", "keys e^H", "peak"), rows, title),
        Table(("τ", "share of weight misplaced", "keys e^H"), limit, "Distance to hard attention, normalizer=Hard()"),
    )


def picture(by_tau: ByTemperature) -> Picture:
    """Effective number of keys against τ, and the largest weight down to the limit."""
    every = sorted(by_tau)
    keys = curve("", TEMPERATURES, [mean(by_tau[tau].effective) for tau in TEMPERATURES])
    peak = curve("largest weight", every, [mean(by_tau[tau].peak) for tau in every])
    apart = curve("distance to hard", every, [mean(by_tau[tau].hard) for tau in every])
    return Panel(
        (
            Lines([keys], "τ", "effective keys e^H", f"Keys in use, of {KEYS}", log_x=True),
            Lines([peak, apart], "τ", "share of the weight", "Toward hard attention", log_x=True),
        )
    )


def claims(by_tau: ByTemperature) -> tuple[Claim, ...]:
    """Each named regime, tested at every temperature it covers."""
    listed = []
    for regime in REGIMES:
        taus = [tau for tau in TEMPERATURES if regime.covers(tau)]
        peaks = [mean(by_tau[tau].peak).mean for tau in taus]
        keys = [mean(by_tau[tau].effective).mean for tau in taus]
        passed = [tau for tau, peak, used in zip(taus, peaks, keys, strict=True) if regime.test(peak, used)]
        if passed == taus:
            verdict = f"confirmed: {regime.means} everywhere"
        elif passed:
            verdict = f"partly: {regime.means} at τ = {', '.join(f'{tau:g}' for tau in passed)}"
        else:
            verdict = f"corrected: {regime.means} nowhere"
        here = f"{_span(keys, '.1f')} keys, peak {_span(peaks, '.2f')}"
        listed.append(Claim(f"{regime.name}, τ = {_span(taus, 'g')}", regime.says, here, verdict))
    return tuple(listed)


def _span(numbers: list[float], form: str) -> str:
    ends = [format(number, form) for number in (numbers[0], numbers[-1])]
    return ends[0] if len(numbers) == 1 else f"{ends[0]}–{ends[1]}"


def finding(by_tau: ByTemperature) -> str:
    """One sentence, from the numbers."""
    low, high = TEMPERATURES[0], TEMPERATURES[-1]
    keys = {tau: mean(by_tau[tau].effective).mean for tau in (low, 0.5, 1.0, high)}
    one_hot = mean(by_tau[0.5].peak).mean >= ONE_HOT
    return (
        f"From τ = {low:g} to {high:g} a query goes from {keys[low]:.1f} to {keys[high]:.1f} of {KEYS} keys in use; "
        f"τ = 0.5 still uses {keys[0.5]:.1f}{'' if one_hot else ', which is not one-hot'}, and at τ = {COLDEST[-1]:g} "
        f"all but {mean(by_tau[COLDEST[-1]].hard).mean:.1%} of the weight is where hard attention puts it "
        f"(unscaled scores of width {WIDTH} are scaled ones at τ = {1 / math.sqrt(WIDTH):g})."
    )
