"""`regard bench`: time, memory and error of our engines beside plain torch."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from regard.bench import report as reports
from regard.bench.agree import DisagreementError
from regard.bench.case import Case
from regard.bench.cases import CASES, LENGTHS, PLOTTED, choose, own
from regard.bench.contenders import PEERS
from regard.bench.device import Device, device
from regard.bench.machine import machine
from regard.bench.measure import Result, Settings, against_one_best, measure
from regard.cli import bench_cache, bench_map
from regard.engine.native.library import DTYPES
from regard.inspection.files import replace
from regard.inspection.records import Table
from regard.plot import save, table
from regard.progress import display, report

QUICK = 2.0  # seconds of timing per case
BUDGET = 15.0
TYPES = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Cases, sizes and the form of the result."""
    parser.add_argument("cases", nargs="*", metavar="CASE", help="a name, a family or a pattern such as 'train*'")
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help="the same; may be repeated")
    parser.add_argument("--list", action="store_true", help="list the cases and end")
    size = parser.add_argument_group("sizes instead of the case's own; without a case, plain attention of these sizes")
    size.add_argument("--n", "--length", type=_lengths, metavar="N[,N…]", help="numbers of queries and keys")
    size.add_argument("--d", type=int, metavar="N", help="width of queries and keys")
    size.add_argument("--heads", type=int, metavar="N", help="query heads, and key heads where they are as many")
    size.add_argument("--batch", type=int, metavar="N")
    size.add_argument("--dtype", choices=TYPES)
    size.add_argument("--mask", metavar="MASK", help="full, causal or window:BEFORE,AFTER (only without a case)")
    size.add_argument("--backward", action="store_true", help="time the gradients too (only without a case)")
    how = parser.add_argument_group("measuring")
    how.add_argument(
        "--quick", action="store_true", help=f"{QUICK:g} s per case, without what must be compiled and without memory"
    )
    how.add_argument("--seconds", type=float, metavar="S", help=f"of timing per case ({BUDGET:g})")
    how.add_argument("--rounds", type=int, metavar="N", help="turns that each contender gets, whatever they take")
    how.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to run (cpu)")
    how.add_argument("--threads", type=int, metavar="N", help="as torch.set_num_threads")
    how.add_argument("--engine", action="append", help="our engines to run (auto if none is named)")
    how.add_argument("--peer", action="append", choices=PEERS, help="whom to run against (all if none is named)")
    result = parser.add_argument_group("results")
    result.add_argument("--json", nargs="?", const="-", metavar="FILE", help="all numbers; printed if no FILE is given")
    result.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    result.add_argument("--plot", type=Path, metavar="FILE", help="time and rate over n, as svg, png, pdf or txt")


def run(args: argparse.Namespace) -> int:
    """Measure, then print; a contender with wrong numbers makes the exit status 1."""
    if args.list:
        print(table(_listing()))
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
        return bench_cache.run(args, _settings(args, place).budget)
    if [*args.cases, *args.case] == ["map"]:
        return bench_map.run(args)
    cases, settings = [case.sized(device=place.kind) for case in _cases(args)], _settings(args, place)
    results: list[Result] = []
    failures: list[str] = []
    interrupted = False
    with display(lines=True) as shown:
        try:
            for number, case in enumerate(cases):
                report(case.name, number, len(cases), "cases")
                try:
                    results.append(measure(case, settings))
                except DisagreementError as wrong:
                    shown.clear()
                    print(f"regard bench: {wrong}", file=sys.stderr)
                    failures.append(str(wrong))
        except KeyboardInterrupt:
            interrupted = True
    _show(args, results, failures, interrupted, place)
    return 130 if interrupted else 1 if failures else 0


def _show(
    args: argparse.Namespace, results: Sequence[Result], failures: Sequence[str], interrupted: bool, place: Device
) -> None:
    here, results = machine(place.name), against_one_best(results)
    notes = reports.notes(results, failures, here)
    if interrupted:
        notes.insert(0, f"interrupted: {len(results)} cases were complete")
    text = json.dumps(reports.record(results, failures, here, interrupted), indent=1, ensure_ascii=False) + "\n"
    if args.json == "-":
        print(text, end="")
    else:
        shown = reports.markdown(results) if args.markdown else table(reports.table(results))
        print("\n".join([shown, "", *notes]), flush=True)
    if args.json not in (None, "-"):  # after the table: if it cannot be written, the numbers are not lost
        replace(Path(args.json), text.encode())
    if args.plot is not None and results:
        save(reports.picture(results), args.plot)


def _cases(args: argparse.Namespace) -> list[Case]:
    named = [*args.cases, *args.case]
    lengths = args.n or (LENGTHS if args.plot is not None else ())
    sizes = {"d": args.d, "heads": args.heads, "batch": args.batch, "dtype": args.dtype and TYPES[args.dtype]}
    if named:
        if args.mask is not None or args.backward:
            raise ValueError("--mask and --backward are for sizes of your own: name no case with them")
        return choose(named, lengths, **sizes)
    if args.n or args.mask is not None or args.backward or any(each is not None for each in sizes.values()):
        return own(args.mask or "full", lengths, args.backward, **sizes)
    return choose(PLOTTED if args.plot is not None else (), lengths)


def _settings(args: argparse.Namespace, place: Device) -> Settings:
    peers = tuple(args.peer or (name for name in PEERS if not (args.quick and name in ("flex", "compiled"))))
    budget = args.seconds or (QUICK if args.quick else BUDGET)
    engines = tuple(args.engine or ("auto",))
    return Settings(budget, args.rounds, engines, peers, memory=not args.quick, device=place)


def _lengths(text: str) -> list[int]:
    try:
        found = [int(each) for each in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"takes whole numbers above 0, as in 1024,4096; got {text!r}")
    return found


def _listing() -> Table:
    rows: list[tuple[str, int | str, str]] = [(case.name, case.shape.heads, case.what) for case in CASES.values()]
    rows.append(("cache", 9, "a language model writes with its cache and without, beside transformers"))
    return Table(("case", "heads", "what"), rows)
