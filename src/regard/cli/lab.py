"""`regard lab` lists the experiments, `regard lab NAME` runs one and prints its findings, `regard lab all` runs all."""

import argparse
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from regard import lab, plot
from regard.cli.options import ALL_EXPERIMENTS as ALL
from regard.cli.options import LAB_FOLDER as FOLDER
from regard.inspection.files import replace
from regard.inspection.records import Cell, Table
from regard.inspection.text import visible
from regard.lab import Report, render
from regard.lab.full_run import record
from regard.lab.report import VERDICTS
from regard.progress import display, report

BOOK = "index.html"


def run(args: argparse.Namespace) -> int:
    """Run the experiment, or list them all."""
    if args.name is None:
        print(listing())
        return 0
    if args.record is not None and args.quick:
        raise ValueError("--record keeps what a full run found; leave --quick out")
    if args.name == ALL:
        return _all(args)
    lab.check_name(args.name)
    if args.out is not None:
        _made(args.out)
    try:
        with display(lines=True):
            result = lab.run(args.name, quick=args.quick, seed=args.seed)
    except KeyboardInterrupt as stop:
        if stop.args:  # how far a training came, and that it goes on from there
            print(stop, file=sys.stderr)
        raise
    if args.format == "json":
        print(render.as_json(result), end="")
    else:
        print(render.text(result, width=shutil.get_terminal_size().columns))
    if args.out is not None:
        files = render.write(result, args.out)
        print(f"wrote {', '.join(file.name for file in files)} to {visible(str(args.out))}", file=sys.stderr)
    if args.record is not None:
        record([result], args.record)
    return 0


def _made(folder: Path) -> None:
    """Make the folder before anything runs, so that no result is lost."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make the folder {folder}: {error.strerror}; give --out another one") from None


def listing() -> str:
    """Every experiment and what it asks."""
    widest = max(map(len, lab.names()))
    lines = [f"  {name:<{widest}}  {asks}" for name, asks in lab.EXPERIMENTS.items()]
    last = f"regard lab {ALL} runs every one and writes a report with all pictures, {FOLDER / BOOK} (--out DIR)"
    return "\n".join(["regard lab NAME runs one of these:", *lines, last])


def _all(args: argparse.Namespace) -> int:
    """Every experiment; each is printed in a line and written as it ends, then the report of all."""
    from regard.lab.page import html_page
    from regard.lab.run_all import Failed, Outcome, run_all
    from regard.lab.setting import Setting

    if args.format == "json":
        raise ValueError(f"regard lab {ALL} writes NAME.json for every experiment to a folder; leave --format out")
    Setting(args.quick, args.seed)  # a seed that cannot be is refused before anything runs
    folder = args.out or FOLDER
    _made(folder)
    start = time.monotonic()
    outcomes: dict[str, Outcome] = {}
    with display(lines=True) as progress:
        then = partial(render.write, folder=folder)
        for outcome in run_all(lab.names(), quick=args.quick, seed=args.seed, then=then):
            outcomes[outcome.name] = outcome
            progress.clear()
            if isinstance(outcome, Failed):
                print(f"{outcome.name}: not run: {outcome.reason}", file=sys.stderr)
            else:
                said = outcome.takeaway.sentence if outcome.takeaway else outcome.finding
                print(f"{outcome.name}: {said}", flush=True)
        report("writing the report", 0, 0)
        html = html_page([outcomes[name] for name in lab.names()], lab.EXPERIMENTS, folder)
        replace(folder / BOOK, html.encode())
    reports = [outcome for outcome in outcomes.values() if not isinstance(outcome, Failed)]
    if args.record is not None:
        record(reports, args.record)
    print(f"\n{plot.table(verdict_counts(reports))}")
    print(f"\nthe report of all is {visible(str(folder / BOOK))} ({time.monotonic() - start:.0f} s)")
    return int(any(isinstance(outcome, Failed) for outcome in outcomes.values()))


def verdict_counts(reports: Sequence[Report]) -> Table:
    """How many claims of each document got each verdict."""
    claims = [claim for report in reports for compared in report.compared for claim in compared.claims]
    counts = Counter((claim.quote.document, claim.verdict) for claim in claims)
    documents = sorted({claim.quote.document for claim in claims})
    rows: list[tuple[Cell, ...]] = [
        (document, *(counts[document, verdict] for verdict in VERDICTS), sum(counts[document, v] for v in VERDICTS))
        for document in documents
    ]
    rows.append(("all", *(sum(counts[each, verdict] for each in documents) for verdict in VERDICTS), len(claims)))
    return Table(("document", *VERDICTS, "claims"), rows, "Claims of the seeds by verdict")
