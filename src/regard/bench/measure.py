"""Measuring one case: results are compared, contenders take turns, a child process shows the memory of each."""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from regard.bench.agree import check, truth
from regard.bench.cases import Inputs, Work, Workload
from regard.bench.contenders import PEERS, Contender, contenders
from regard.bench.device import Device
from regard.bench.machine import fma_peak, read_bandwidth
from regard.progress import report, reporting

SAMPLE = 0.002  # seconds that one sample takes at least: short calls are repeated within it
SHORT = 0.05  # a call below this is run once untimed in each turn, so that none pays for the one before
MOST = 200  # rounds
LEAST = 3


@dataclass(frozen=True)
class Settings:
    """How long, how often, and against whom."""

    budget: float = 15.0  # seconds of timing per case
    rounds: int | None = None  # as many as the budget allows
    engines: tuple[str, ...] = ("auto",)
    peers: tuple[str, ...] = tuple(PEERS)
    memory: bool = True
    device: Device = Device()


@dataclass(frozen=True)
class Measurement:
    """One contender on one case; without seconds, `reason` tells why."""

    contender: str
    ours: bool
    seconds: float | None = None
    samples: int = 0
    error: float | None = None  # root mean square against float64
    compile_seconds: float | None = None
    extra_bytes: int | None = None  # beyond inputs, outputs and gradients
    reason: str | None = None


@dataclass(frozen=True)
class CaseResult:
    """All contenders on one case, the first of ours at the head, and the machine's best rates in the same minutes."""

    case: Workload
    scores: tuple[Measurement, ...]
    flops: float
    peak_flops: float | None
    bandwidth: float | None = None

    @property
    def ours(self) -> Measurement:
        """What the others are compared with."""
        return self.scores[0]

    def ratio(self, score: Measurement) -> float | None:
        """How many times as long as ours it takes."""
        return score.seconds / self.ours.seconds if score.seconds and self.ours.seconds else None

    def rate(self, score: Measurement) -> float | None:
        """Useful operations per second."""
        return self.flops / score.seconds if score.seconds else None

    def share(self, score: Measurement) -> float | None:
        """Of the machine's best: of its reading where the case is cold, of its multiply-adds elsewhere."""
        if self.case.cold:
            got, best = (self.case.bytes_read() / score.seconds if score.seconds else None), self.bandwidth
        else:
            got, best = self.rate(score), self.peak_flops
        return got / best if got and best else None


def measure(case: Workload, settings: Settings = Settings()) -> CaseResult:
    """Time and memory of all contenders on one case; raises DisagreementError if one's numbers are wrong."""
    report("comparing", 0, 0, "step")
    sets = [case.inputs(seed) for seed in range(case.sets(settings.device.cache_bytes()))]
    right = truth(case, sets[0])
    output_gradient = case.output_gradient()
    scores: dict[str, Measurement] = {}
    works: dict[str, Callable[[], object]] = {}
    by_name = {contender.name: contender for contender in contenders(case, settings.engines, settings.peers)}
    for name, contender in by_name.items():
        scores[name] = Measurement(name, contender.ours, reason=contender.refuses(case))
        if scores[name].reason is not None:
            continue
        report(f"comparing {name}", 0, 0, "step")
        start = time.perf_counter()
        try:
            work = contender.prepare(case, sets[0])
            compile_seconds = time.perf_counter() - start if contender.compiles else None
            results = contender.run(work, sets[0], output_gradient)
        except Exception as failure:
            if contender.ours:
                raise
            reason = ": ".join(
                [type(failure).__name__, *(line[:160] for line in str(failure).strip().splitlines()[:1])]
            )
            scores[name] = replace(scores[name], reason=reason)
            continue
        error = check(case, contender, results, right)
        del results
        scores[name] = replace(scores[name], error=error, compile_seconds=compile_seconds)
        works[name] = _call(contender, work, sets, output_gradient)
    del right
    report("timing", 0, 0, "step")
    flops: list[float | None] = []
    reads: list[float | None] = []

    def machine_rates() -> None:
        if settings.device.kind == "cpu":
            flops.append(fma_peak())
            reads.append(read_bandwidth() if case.cold else None)

    best = in_turns(works, settings.budget, settings.rounds, machine_rates, settings.device.synchronize)
    for name, timed in best.items():
        extra = None
        if settings.memory:
            report(f"memory of {name}", 0, 0, "step")
            extra = settings.device.extra_bytes(case, by_name[name], settings.engines)
        scores[name] = replace(scores[name], seconds=timed.seconds, samples=timed.samples, extra_bytes=extra)
    return CaseResult(case, tuple(scores.values()), case.flops(), _most(flops), _most(reads))


def _call(
    contender: Contender, work: Work, sets: Sequence[Inputs], output_gradient: Tensor | None
) -> Callable[[], object]:
    if len(sets) == 1 and output_gradient is None:
        return partial(work, sets[0])
    turns = itertools.cycle(sets)
    return lambda: contender.run(work, next(turns), output_gradient)


def against_one_best(results: Sequence[CaseResult]) -> list[CaseResult]:
    """The results with the machine's best rates of the whole run: noise must not make a share look larger."""
    flops, reads = _most(each.peak_flops for each in results), _most(each.bandwidth for each in results)
    return [replace(each, peak_flops=flops, bandwidth=reads) for each in results]


def _most(rates: Iterable[float | None]) -> float | None:
    return max((rate for rate in rates if rate), default=None)


@dataclass(frozen=True)
class Best:
    """The shortest time of one call, and in how many samples it was found."""

    seconds: float
    samples: int


def in_turns(
    works: Mapping[str, Callable[[], object]],
    budget: float,
    rounds: int | None = None,
    between: Callable[[], None] = lambda: None,
    synchronize: Callable[[], None] = lambda: None,
) -> dict[str, Best]:
    """The best time of each work within about `budget` seconds; `between` runs after every round, and
    `synchronize` returns when all work is done.

    Without a number of rounds, a contender that has used its share of the time sits out, but not before `LEAST`
    samples; the others go on against each other.
    """
    best = dict.fromkeys(works, Best(float("inf"), 0))
    spent = dict.fromkeys(works, 0.0)
    share = budget / len(works)
    with reporting(None):
        for _ in range(rounds or MOST):
            active = [name for name in works if rounds or best[name].samples < LEAST or spent[name] < share]
            if not active:
                break
            for name in active:
                start = time.perf_counter()
                seconds = _sample(works[name], best[name].seconds, synchronize)
                spent[name] += time.perf_counter() - start
                best[name] = Best(min(best[name].seconds, seconds), best[name].samples + 1)
            between()
    return best


def _sample(work: Callable[[], object], expected: float, synchronize: Callable[[], None]) -> float:
    """Seconds of one call, on average over one sample."""
    repeats = 1
    if expected < SHORT:
        work()
        repeats = max(1, min(1000, round(SAMPLE / expected)))
    synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    synchronize()
    return (time.perf_counter() - start) / repeats
