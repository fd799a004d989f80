"""`regard bench map`: how long the map makes its visitor wait, and what it holds."""

import argparse
import json
import os
from pathlib import Path

from regard.bench import map as measured
from regard.bench.machine import machine
from regard.inspection.files import replace
from regard.plot import table
from regard.progress import display

LENGTH, SHORT = 100_000, 10_000


def run(args: argparse.Namespace) -> int:
    """Measure, then print; `--n` is one length, `--quick` is short and without visitors."""
    lengths = args.n or [SHORT if args.quick else LENGTH]
    if len(lengths) != 1:
        raise ValueError(f"the map is measured at one length, got {', '.join(map(str, lengths))}")
    heads = args.heads or 8
    with display(lines=True):
        figures = measured.measure(
            lengths[0],
            views=5 if args.quick else 20,
            heads=heads,
            visitors=0 if args.quick else 20,
            seconds=args.seconds or 60.0,
        )
    here = machine()
    text = json.dumps(measured.record(figures, here), indent=1, ensure_ascii=False) + "\n"
    if args.json not in (None, "-"):
        replace(Path(args.json), text.encode())
    if args.json == "-":
        print(text, end="")
    else:
        load = " ".join(f"{each:.1f}" for each in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown"
        print("\n".join([table(measured.table(figures)), "", f"load of the machine at the end: {load}", str(here)]))
    return 0
