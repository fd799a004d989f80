"""`regard bench`: time, memory and error of our engines beside plain torch."""

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from regard import models
from regard.bench import cache as cache_bench
from regard.bench import map as map_bench
from regard.bench.agree import DisagreementError
from regard.bench.cases import CASES, LENGTHS, PLOTTED, Workload, choose, own
from regard.bench.contenders import EAGER, FLEX, SDPA
from regard.bench.device import Device, device
from regard.bench.machine import Machine, machine
from regard.bench.measure import CaseResult, Measurement, Settings, against_one_best, measure
from regard.cli.options import PEERS, QUICK_SECONDS, SECONDS
from regard.inspection.files import replace
from regard.inspection.records import Cell, Line, Lines, Panel, Table
from regard.nn import LanguageModel
from regard.plot import save, table
from regard.progress import display, report

MAP_LENGTH, QUICK_MAP_LENGTH = 100_000, 10_000
SHOWN = (SDPA, FLEX, EAGER)
NONE = "–"


def run(args: argparse.Namespace) -> int:
    """Measure, then print; a contender with wrong numbers makes the exit status 1."""
    if args.list:
        rows: list[list[Cell]] = [[case.name, case.shape.heads, case.what] for case in CASES.values()]
        rows.append(["cache", 9, "a language model writes with its cache and without, beside transformers"])
        print(table(Table(("case", "heads", "what"), rows)))
        return 0
    if args.json not in (None, "-") and not args.json.endswith(".json"):
        raise ValueError(f"--json takes a file whose name ends in .json, got {args.json!r}; name cases before it")
    for name in ("d", "heads", "batch", "rounds", "threads", "seconds"):
        if (given := getattr(args, name)) is not None and not given > 0:
            raise ValueError(f"--{name} must be above 0, got {given}")
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    place = device(args.device)
    if [*args.cases, *args.case] == ["cache"]:
        if place.kind != "cpu":
            raise ValueError("cache is measured on the processor; leave --device out")
        return _cache(args, _settings(args, place).budget)
    if [*args.cases, *args.case] == ["map"]:
        return _map(args)
    cases, settings = [case.sized(device=place.kind) for case in _cases(args)], _settings(args, place)
    results: list[CaseResult] = []
    failures: list[str] = []
    interrupted = False
    with display(lines=True) as progress:
        try:
            for number, case in enumerate(cases):
                report(case.name, number, len(cases), "cases")
                try:
                    results.append(measure(case, settings))
                except DisagreementError as wrong:
                    progress.clear()
                    print(f"regard bench: {wrong}", file=sys.stderr)
                    failures.append(str(wrong))
        except KeyboardInterrupt:
            interrupted = True
    _show(args, results, failures, interrupted, place)
    return 130 if interrupted else 1 if failures else 0


def _show(
    args: argparse.Namespace, results: Sequence[CaseResult], failures: Sequence[str], interrupted: bool, place: Device
) -> None:
    here, results = machine(place.name), against_one_best(results)
    notes = result_notes(results, failures, here)
    if interrupted:
        notes.insert(0, f"interrupted: {len(results)} cases were complete")
    text = markdown(results) if args.markdown else table(result_table(results))
    _print(args, [text, "", *notes], result_record(results, failures, here, interrupted))
    if args.plot is not None and results:
        save(length_picture(results), args.plot)


def _cases(args: argparse.Namespace) -> list[Workload]:
    named = [*args.cases, *args.case]
    lengths = args.n or (LENGTHS if args.plot is not None else ())
    sizes = {"d": args.d, "heads": args.heads, "batch": args.batch, "dtype": args.dtype and getattr(torch, args.dtype)}
    if named:
        if args.mask is not None or args.backward:
            raise ValueError("--mask and --backward are for sizes of your own: name no case with them")
        return choose(named, lengths, **sizes)
    if args.n or args.mask is not None or args.backward or any(each is not None for each in sizes.values()):
        return own(args.mask or "full", lengths, args.backward, **sizes)
    return choose(PLOTTED if args.plot is not None else (), lengths)


def _settings(args: argparse.Namespace, place: Device) -> Settings:
    peers = tuple(args.peer or (name for name in PEERS if not (args.quick and name in ("flex", "compiled"))))
    budget = args.seconds or (QUICK_SECONDS if args.quick else SECONDS)
    engines = tuple(args.engine or ("auto",))
    return Settings(budget, args.rounds, engines, peers, memory=not args.quick, device=place)


def _cache(args: argparse.Namespace, budget: float) -> int:
    """`regard bench cache`: a model writes with its cache and without; `--plot` draws the curve."""
    here = machine()
    lengths = args.n or cache_bench.LENGTHS[: 3 if args.quick else None]
    with display(lines=True):
        report("loading", 0, len(lengths), "lengths")
        contest = _contest()
        points = []
        for number, length in enumerate(lengths):
            report(f"{length} tokens", number, len(lengths), "lengths")
            points.append(cache_bench.measure(contest, length, budget, args.rounds))
    reason = [f"– transformers: {contest.reason}"] if contest.reason else []
    lines = [table(cache_bench.table(points)), "", contest.what, *reason, str(here)]
    _print(args, lines, cache_bench.record(contest, points, here))
    if args.plot is not None:
        save(cache_bench.picture(points, contest.what), args.plot)
    return 0


def _contest() -> cache_bench.Contest:
    """SmolLM2 with its own weights if it has been downloaded, and transformers beside it if that is there."""
    try:
        folder = models.path("smollm2")
    except (FileNotFoundError, ValueError):
        return cache_bench.Contest(
            "a model of SmolLM2's shape", cache_bench.shaped(), reason="run: regard models get smollm2"
        )
    model = models.build(folder)
    assert isinstance(model, LanguageModel)
    if importlib.util.find_spec("transformers") is None:
        return cache_bench.Contest("SmolLM2", model, reason="transformers is not installed")
    import transformers

    transformers.logging.disable_progress_bar()
    peer = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa").eval()
    return cache_bench.Contest("SmolLM2", model, peer)


def _map(args: argparse.Namespace) -> int:
    """`regard bench map`: response times and memory of the map.

    `--n` is one length; `--quick` is short and without visitors.
    """
    lengths = args.n or [QUICK_MAP_LENGTH if args.quick else MAP_LENGTH]
    if len(lengths) != 1:
        raise ValueError(f"the map is measured at one length, got {', '.join(map(str, lengths))}")
    with display(lines=True):
        figures = map_bench.measure(
            lengths[0],
            views=5 if args.quick else 20,
            heads=args.heads or 8,
            visitors=0 if args.quick else 20,
            seconds=args.seconds or 60.0,
        )
    here = machine()
    load = " ".join(f"{each:.1f}" for each in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown"
    lines = [table(map_bench.table(figures)), "", f"load of the machine at the end: {load}", str(here)]
    _print(args, lines, map_bench.record(figures, here))
    return 0


def _print(args: argparse.Namespace, lines: Sequence[str], record: dict[str, Any]) -> None:
    """Print the lines, or the record as JSON if `--json` names no file; then write the file."""
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    if args.json == "-":
        print(text, end="")
    else:
        print("\n".join(lines), flush=True)
    if args.json not in (None, "-"):  # after the table: if it cannot be written, the numbers are not lost
        replace(Path(args.json), text.encode())


def result_table(results: Sequence[CaseResult]) -> Table:
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
        _share(share, result.case.cold),
        _mebibytes(ours),
        _mebibytes(scores.get(SDPA)),
    ]


def _share(share: float | None, cold: bool) -> str:
    if share is None:
        return NONE
    if (
        share > 1 and not cold
    ):  # ALiBi leaves out visible pairs whose weight counts as 0, and all visible pairs are counted
        return "skips pairs"
    return f"{share:.0%}{' of reading' if cold else ''}"


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


def result_notes(results: Sequence[CaseResult], failures: Sequence[str], machine: Machine) -> list[str]:
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
    whole = result_table(results)
    rows = [whole.columns, ["---"] * len(whole.columns), *whole.rows]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def result_record(
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


def length_picture(results: Sequence[CaseResult]) -> Panel:
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
