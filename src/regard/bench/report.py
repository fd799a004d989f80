"""Results for readers: a table with its notes, one JSON document, a picture over the length."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from regard.bench.contenders import EAGER, FLEX, SDPA
from regard.bench.machine import Machine
from regard.bench.measure import CaseResult, Measurement
from regard.inspection.records import Line, Lines, Panel, Table

SHOWN = (SDPA, FLEX, EAGER)
NONE = "–"


def table(results: Sequence[CaseResult]) -> Table:
    """One row per case: our time, each peer's with its ratio to ours, rate, share of the best, memory."""
    peers = [name for name in SHOWN if any(score.contender == name for each in results for score in each.scores)]
    columns = ("case", "regard", *peers, "GFLOP/s", "of peak", "extra MiB", f"{SDPA} MiB")
    return Table(columns, [_row(each, peers) for each in results])


def _row(result: CaseResult, peers: Sequence[str]) -> list[str]:
    scores = {score.contender: score for score in result.scores}
    ours, rate, share = result.ours, result.rate(result.ours), result.share(result.ours)
    return [
        result.case.name,
        seconds_text(ours.seconds),
        *(_beside(result, scores[name]) if name in scores else NONE for name in peers),
        NONE if rate is None else f"{rate / 1e9:.0f}" if rate > 1e10 else f"{rate / 1e9:.2g}",
        NONE if share is None else f"{share:.0%}{' of reading' if result.case.cold else ''}",
        _mebibytes(ours),
        _mebibytes(scores.get(SDPA)),
    ]


def _beside(result: CaseResult, score: Measurement) -> str:
    ratio = result.ratio(score)
    return NONE if ratio is None else f"{seconds_text(score.seconds)} ({ratio:.2f}×)"


def _mebibytes(score: Measurement | None) -> str:
    if score is None or score.extra_bytes is None:
        return NONE
    size = score.extra_bytes / 2**20
    return f"{size:.0f}" if size >= 10 else f"{size:.1f}"


def seconds_text(seconds: float | None) -> str:
    """Three digits and a unit."""
    if seconds is None:
        return NONE
    unit, size = next(((u, s) for u, s in (("s", 1.0), ("ms", 1e-3)) if seconds >= s), ("µs", 1e-6))
    number = seconds / size
    return f"{number:.{max(0, 3 - len(str(int(number))))}f} {unit}"


def notes(results: Sequence[CaseResult], failures: Sequence[str], machine: Machine) -> list[str]:
    """What the table leaves out: other comparisons, growth, compiling, reasons, the machine."""
    lines = [f"WRONG: {failure}" for failure in failures]
    reasons: dict[str, list[str]] = {}
    for result in results:
        for score in result.scores:
            if score.reason is not None:
                reasons.setdefault(f"{NONE} {score.contender}: {score.reason}", []).append(result.case.name)
            elif score is not result.ours and score.contender not in SHOWN and score.seconds:
                lines.append(f"{result.case.name}: {score.contender} {_beside(result, score)}")
    past = [(each.case, each.ours.seconds) for each in results if each.case.family == "past" and each.ours.seconds]
    if len(past) > 1:  # a case whose work is linear in the length
        (first, least), (last, most) = past[0], past[-1]
        longer = last.shape.n / first.shape.n
        lines.append(f"{first.name} to {last.name}: {longer:g}× the length takes {most / least:.2f}× the time")
    compiled = [s.compile_seconds for each in results for s in each.scores if s.compile_seconds is not None]
    if compiled:
        lines.append(f"compiling took {min(compiled):.1f} to {max(compiled):.1f} s per case, not counted above")
    lines += [f"{reason} ({', '.join(names)})" for reason, names in reasons.items()]
    if results and (peak := results[0].peak_flops):
        lines.append(f"multiply-adds in registers reach {peak / 1e9:.0f} GFLOP/s")
    if results and (read := results[0].bandwidth):
        lines.append(f"reading memory reaches {read / 1e9:.1f} GB/s")
    return [*lines, str(machine)]


def markdown(results: Sequence[CaseResult]) -> str:
    """The table for a page."""
    whole = table(results)
    rows = [whole.columns, ["---"] * len(whole.columns), *whole.rows]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def record(
    results: Sequence[CaseResult], failures: Sequence[str], machine: Machine, interrupted: bool
) -> dict[str, Any]:
    """Everything as JSON values; times in seconds, rates per second."""
    return {
        "machine": asdict(machine),
        "interrupted": interrupted,
        "wrong": list(failures),
        "results": [_result(each) for each in results],
    }


def _result(result: CaseResult) -> dict[str, Any]:
    case = result.case
    shape = {**asdict(case.shape), "dtype": str(case.shape.dtype).removeprefix("torch.")}
    return {
        "case": case.name,
        "family": case.family,
        "what": case.what,
        "shape": shape,
        "backward": case.backward,
        "flops": result.flops,
        "bytes_read": case.bytes_read() if case.cold else None,
        "peak_flops": result.peak_flops,
        "read_bandwidth": result.bandwidth,
        "contenders": [
            asdict(score)
            | {"ratio": result.ratio(score), "flops_rate": result.rate(score), "share": result.share(score)}
            for score in result.scores
        ],
    }


def picture(results: Sequence[CaseResult]) -> Panel:
    """Time and rate over the length, a curve per case and contender."""
    curves: dict[str, list[tuple[int, float, float]]] = {}
    families = {(each.case.family, each.case.shape.d) for each in results}
    for result in results:
        for score in result.scores:
            rate = result.rate(score)
            if score.seconds and rate:
                prefix = f"{result.case.family} {result.case.shape.d}, " if len(families) > 1 else ""
                point = (result.case.shape.n, score.seconds * 1e3, rate / 1e9)
                curves.setdefault(f"{prefix}{score.contender}", []).append(point)
    times, rates = [], []
    for name, points in curves.items():
        lengths, milliseconds, gigaflops = zip(*sorted(points), strict=True)
        times.append(Line(name, lengths, milliseconds))
        rates.append(Line(name, lengths, gigaflops))
    return Panel(
        [
            Lines(times, "n", "ms", "time", log_x=True, log_y=True),
            Lines(rates, "n", "GFLOP/s", "useful operations", log_x=True),
        ],
        ", ".join(sorted({each.case.family for each in results})),
    )
