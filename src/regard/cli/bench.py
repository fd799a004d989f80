"""`regard bench`: time, memory and error of our engines beside plain torch."""

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from regard import models
from regard.bench import cache as cache_bench
from regard.bench import map as map_bench
from regard.bench import report as reports
from regard.bench.agree import DisagreementError
from regard.bench.cases import CASES, LENGTHS, PLOTTED, Workload, choose, own
from regard.bench.device import Device, device
from regard.bench.machine import machine
from regard.bench.measure import CaseResult, Settings, against_one_best, measure
from regard.cli.options import PEERS, QUICK_SECONDS, SECONDS
from regard.inspection.files import replace
from regard.inspection.records import Cell, Table
from regard.nn import LanguageModel
from regard.plot import save, table
from regard.progress import display, report

MAP_LENGTH, QUICK_MAP_LENGTH = 100_000, 10_000


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
    notes = reports.notes(results, failures, here)
    if interrupted:
        notes.insert(0, f"interrupted: {len(results)} cases were complete")
    text = reports.markdown(results) if args.markdown else table(reports.table(results))
    _print(args, [text, "", *notes], reports.record(results, failures, here, interrupted))
    if args.plot is not None and results:
        save(reports.picture(results), args.plot)


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
