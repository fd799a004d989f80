"""`regard lab`: lists the experiments; `regard lab NAME` runs one and prints what it found."""

import argparse
import shutil
import sys
from pathlib import Path

from regard import lab
from regard.cli.progress import Progress
from regard.lab import page


def arguments(parser: argparse.ArgumentParser) -> None:
    """The name of an experiment, and how to run it."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="an experiment; without it, a list of them")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: seconds, and wider intervals")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the random numbers (0)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="also write NAME.png, .svg, .csv and .json there")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="what is printed (text)")


def run(args: argparse.Namespace) -> int:
    """Run the experiment, or list them all."""
    if args.name is None:
        print(listing())
        return 0
    with Progress() as progress:
        report = lab.run(args.name, quick=args.quick, seed=args.seed, progress=progress)
    if args.format == "json":
        print(page.as_json(report), end="")
    else:
        print(page.text(report, width=shutil.get_terminal_size().columns))
    if args.out is not None:
        files = page.write(report, args.out)
        print(f"wrote {', '.join(file.name for file in files)} to {args.out}", file=sys.stderr)
    return 0


def listing() -> str:
    """Every experiment and what it asks."""
    widest = max(map(len, lab.names()))
    lines = [f"  {name:<{widest}}  {asks}" for name, asks in lab.EXPERIMENTS.items()]
    return "\n".join(["regard lab NAME runs one of these:", *lines])
