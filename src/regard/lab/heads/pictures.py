"""Pictures of the experiment on heads."""

import torch

from regard.inspection.capture import capture
from regard.inspection.records import Grid, Line, Lines, Panel, Picture
from regard.inspection.statistics import mean
from regard.lab.curves import curve
from regard.lab.heads.measure import STARTS
from regard.lab.heads.results import HEADS, KNOWN, QUESTIONS, SEED, Random, Run, Runs, alike, width_of
from regard.lab.relations.task import Relating
from regard.lab.training.over import share


def map_picture(run: Run) -> Picture:
    """The heads of one model on one text."""
    asked = run.trained.task
    assert isinstance(asked, Relating)
    texts = asked.texts(1, torch.Generator().manual_seed(asked.seed + 4))
    with torch.no_grad():
        found = capture(run.trained.model, *texts.inputs)
    labels = [chr(ord("A") + kind) for kind in texts.types[0].tolist()]
    grids = [
        Grid(found[0, head].dense()[0].tolist(), labels, labels, f"head {head + 1}: {called}", limits=(0.0, 1.0))
        for head, called in enumerate(run.after.kinds)
    ]
    return Panel(grids, "Trained: each item looks for three others (letters are types)")


def similarity_picture(random: Random, runs: Runs) -> Picture:
    """Similarities against the number of heads."""
    start, several = next(iter(STARTS)), HEADS[1:]
    lines = [
        curve("random", several, [mean(random[start, "cosine", KNOWN][heads]) for heads in several]),
        curve("trained", several, [alike(runs, heads, "cosine") for heads in several]),
        curve("trained, centered", several, [alike(runs, heads, "centered") for heads in several]),
        Line("the seed", several, [SEED[heads] for heads in several]),
    ]
    return Lines(lines, "heads", "similarity", "Average of two heads")


def learned_picture(runs: Runs) -> Picture:
    """Right answers against the number of heads."""
    lines = [
        curve(question, HEADS, [share([each.right[question] for each in runs[heads]]) for heads in HEADS])
        for question in QUESTIONS
    ]
    return Lines(lines, "heads", "share of right answers", f"Width {width_of(runs)}, several heads")
