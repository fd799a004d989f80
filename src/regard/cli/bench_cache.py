"""`regard bench cache`: a model writes with its cache and without."""

import argparse
import importlib.util
import json
from pathlib import Path

from regard import models
from regard.bench import cache
from regard.bench.machine import machine
from regard.inspection.files import replace
from regard.nn import LanguageModel
from regard.plot import save, table
from regard.progress import display, report


def _contest() -> cache.Contest:
    """SmolLM2 with its own weights if it has been downloaded, and transformers beside it if that is there."""
    try:
        folder = models.path("smollm2")
    except (FileNotFoundError, ValueError):
        return cache.Contest("a model of SmolLM2's shape", cache.shaped(), reason="run: regard models get smollm2")
    model = models.build(folder)
    assert isinstance(model, LanguageModel)
    if importlib.util.find_spec("transformers") is None:
        return cache.Contest("SmolLM2", model, reason="transformers is not installed")
    import transformers

    transformers.logging.disable_progress_bar()
    peer = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa").eval()
    return cache.Contest("SmolLM2", model, peer)


def run(args: argparse.Namespace, budget: float) -> int:
    """Measure, then print the curve as a table; `--plot` draws it."""
    here = machine()
    lengths = args.n or cache.LENGTHS[: 3 if args.quick else None]
    with display(lines=True):
        report("loading", 0, len(lengths), "lengths")
        contest = _contest()
        points = []
        for number, length in enumerate(lengths):
            report(f"{length} tokens", number, len(lengths), "lengths")
            points += cache.measure(contest, [length], budget, args.rounds)
    text = json.dumps(cache.record(contest, points, here), indent=1, ensure_ascii=False) + "\n"
    if args.json not in (None, "-"):
        replace(Path(args.json), text.encode())
    if args.json == "-":
        print(text, end="")
    else:
        reason = [f"– transformers: {contest.reason}"] if contest.reason else []
        print("\n".join([table(cache.table(points)), "", contest.what, *reason, str(here)]))
    if args.plot is not None:
        save(cache.picture(points, contest.what), args.plot)
    return 0
