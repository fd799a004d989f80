"""Measuring one case: results are compared, then contenders take turns, then a child process weighs each."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from regard.bench.agree import check, direction, run, truth
from regard.bench.case import Case, Inputs, Work
from regard.bench.contenders import PEERS, Contender, contenders
from regard.bench.device import Device
from regard.bench.machine import fma_peak, read_bandwidth
from regard.bench.turns import in_turns
from regard.progress import report


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
class Score:
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
class Result:
    """All contenders on one case, the first of ours at the head, and the machine's best in the same minutes."""

    case: Case
    scores: tuple[Score, ...]
    flops: float
    peak_flops: float | None
    bandwidth: float | None = None

    @property
    def ours(self) -> Score:
        """What the others are compared with."""
        return self.scores[0]

    def ratio(self, score: Score) -> float | None:
        """How many times as long as ours it takes."""
        return score.seconds / self.ours.seconds if score.seconds and self.ours.seconds else None

    def rate(self, score: Score) -> float | None:
        """Useful operations per second."""
        return self.flops / score.seconds if score.seconds else None

    def share(self, score: Score) -> float | None:
        """Of the machine's best: of its reading where the case is cold, of its multiply-adds elsewhere."""
        if self.case.cold:
            got, best = (self.case.bytes_read() / score.seconds if score.seconds else None), self.bandwidth
        else:
            got, best = self.rate(score), self.peak_flops
        return got / best if got and best else None


@dataclass
class _Yardsticks:
    cold: bool
    flops: list[float] = field(default_factory=list)
    bytes: list[float] = field(default_factory=list)

    def __call__(self) -> None:
        if (found := fma_peak()) is not None:
            self.flops.append(found)
        if self.cold and (found := read_bandwidth()) is not None:
            self.bytes.append(found)


def measure(case: Case, settings: Settings = Settings()) -> Result:
    """Time and weigh everybody on one case; raises DisagreementError if somebody's numbers are wrong."""
    report("comparing", 0, 0, "step")
    sets = [case.inputs(seed) for seed in range(case.sets(settings.device.cache_bytes()))]
    right = truth(case, sets[0])
    back = direction(case) if case.backward else None
    scores: dict[str, Score] = {}
    works: dict[str, Callable[[], object]] = {}
    everybody = contenders(case, settings.engines, settings.peers)
    for contender in everybody:
        name = contender.name
        reason = contender.refuses(case)
        if reason is None:
            report(f"comparing {name}", 0, 0, "step")
            start = time.perf_counter()
            try:
                work = contender.prepare(case, sets[0])
                taken = time.perf_counter() - start if contender.compiles else None
                found = run(case, contender, work, sets[0], back)
            except Exception as failure:
                if contender.ours:
                    raise
                reason = _first_line(failure)
            else:
                error = check(case, contender, found, right)
                del found
                scores[name] = Score(name, contender.ours, error=error, compile_seconds=taken)
                works[name] = _call(case, contender, work, sets, back)
        if reason is not None:
            scores[name] = Score(name, contender.ours, reason=reason)
    del right
    report("timing", 0, 0, "step")
    yardsticks = _Yardsticks(case.cold)
    between = yardsticks if settings.device.kind == "cpu" else lambda: None
    best = in_turns(works, settings.budget, settings.rounds, between, settings.device.settle)
    found_scores = []
    for contender in everybody:
        score = scores[contender.name]
        if contender.name in best:
            if settings.memory:
                report(f"weighing {contender.name}", 0, 0, "step")
            weight = settings.device.weigh(case, contender, settings.engines) if settings.memory else None
            timed = best[contender.name]
            score = replace(score, seconds=timed.seconds, samples=timed.samples, extra_bytes=weight)
        found_scores.append(score)
    return Result(
        case,
        tuple(found_scores),
        case.flops(),
        max(yardsticks.flops, default=None),
        max(yardsticks.bytes, default=None),
    )


def against_one_best(results: Sequence[Result]) -> list[Result]:
    """The same with the machine's best of the whole run: a noisy minute must not make a share look larger."""
    flops = max((each.peak_flops for each in results if each.peak_flops), default=None)
    reads = max((each.bandwidth for each in results if each.bandwidth), default=None)
    return [replace(each, peak_flops=flops, bandwidth=reads) for each in results]


def _call(
    case: Case, contender: Contender, work: Work, sets: Sequence[Inputs], back: Tensor | None
) -> Callable[[], object]:
    if len(sets) == 1 and back is None:
        inputs = sets[0]
        return lambda: work(inputs)
    turn = itertools.cycle(sets)
    return lambda: run(case, contender, work, next(turn), back)


def _first_line(failure: Exception) -> str:
    lines = str(failure).strip().splitlines()
    return f"{type(failure).__name__}: {lines[0][:160]}" if lines else type(failure).__name__
