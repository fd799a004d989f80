"""`regard bench`: time, memory and error of our engines beside plain torch."""

import argparse
import json
import platform
from dataclasses import asdict

import torch

from regard.bench.cases import CASES
from regard.bench.measure import Measurement, measure, product_peak
from regard.inspection.records import Table
from regard.show import table


def arguments(parser: argparse.ArgumentParser) -> None:
    """Cases, sizes and the form of the result."""
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all if none is named")
    parser.add_argument("--length", type=int, help="number of queries and keys instead of the case's own")
    parser.add_argument("--rounds", type=int, default=5, help="turns that each contender gets; the best counts")
    parser.add_argument("--engine", action="append", help="our engines to run (auto if none is named)")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")


def run(args: argparse.Namespace) -> int:
    """Measure, then print."""
    unknown = [name for name in args.cases if name not in CASES]
    if unknown:
        raise ValueError(f"no case {', '.join(unknown)}; the cases are {', '.join(CASES)}")
    if (args.length is not None and args.length < 1) or args.rounds < 1:
        raise ValueError("--length and --rounds must be at least 1")
    chosen = args.cases or list(CASES)
    engines = tuple(args.engine or ("auto",))
    found = [
        m for name in chosen for m in measure(CASES[name], length=args.length, rounds=args.rounds, engines=engines)
    ]
    machine = f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    peak = product_peak()
    if args.json:
        print(json.dumps({"machine": machine, "product_gflops": peak, "results": [asdict(m) for m in found]}, indent=1))
        return 0
    print(table(_table(found, f"{machine}; a large matrix product reaches {peak:.0f} GFLOP/s")))
    return 0


def _table(found: list[Measurement], title: str) -> Table:
    columns = ("case", "n", "contender", "ms", "GFLOP/s", "extra MiB", "RMS error", "times torch")
    peers = {m.case: m.seconds for m in found if not m.contender.startswith("regard")}
    rows = [
        (
            m.case,
            m.length,
            m.contender,
            f"{m.seconds * 1e3:.2f}",
            f"{m.gflops:.0f}",
            f"{m.mebibytes:.1f}",
            "–" if m.error is None else f"{m.error:.1e}",
            f"{peers[m.case] / m.seconds:.2f}×",
        )
        for m in found
    ]
    return Table(columns, rows, title)
