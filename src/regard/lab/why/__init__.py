"""why: attention, a convolution and a recurrent net are asked for something that stands far back.

A sequence of random symbols has one marked token, or four with different marks; the last token asks for the symbol
under one of them. All three models have the same number of parameters and steps, and begin with the same embeddings.
"""

import itertools
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from regard.inspection.records import Cell, Estimate, Line, Lines, Panel, Picture, Table
from regard.lab.report import (
    MINI_COURSE,
    RESULTS,
    Claim,
    Evidence,
    Report,
    Takeaway,
    Timing,
    above,
    below,
    compared,
    quoted,
)
from regard.lab.setting import Setting
from regard.lab.statistics import curve, number, over_trainings, parameters
from regard.lab.stopwatch import timed
from regard.lab.training import Trained, train
from regard.lab.why import task
from regard.lab.why.task import KERNEL, KINDS, LAYERS, REACH, SYMBOLS, MarkRecall, drawn, right_answers

ONE, SEVERAL = MARKED = (1, 4)  # marked tokens
RATES = {"attention": 0.01, "convolution": 0.02, "recurrence": 0.01}
GOOD, HALF = 0.9, 0.5
SAME = 1e-4  # a difference in float32 that is rounding
FARTHEST = 2**62  # farther than any distance


@dataclass(frozen=True)
class RecallResults:
    """The trainings of one kind of model for so many marks, and how each answered, with the distance of every question.

    `others` are the answers at other lengths, `focus` the weights on the right token (attention alone) and `before`
    those of the untrained models.
    """

    trained: list[Trained]
    right: list[Tensor]
    distance: list[Tensor]
    others: dict[int, list[Tensor]]
    reach: int
    focus: list[Tensor]
    before: list[Tensor]

    def accuracy(self, low: int = 1, high: int = FARTHEST) -> Estimate:
        """Right answers about distances from `low` to below `high`."""
        answers = [each[(far >= low) & (far < high)] for each, far in zip(self.right, self.distance, strict=True)]
        return over_trainings(answers)


Results = dict[tuple[str, int], RecallResults]  # by kind of model and number of marks


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions, length = setting.choose(full=3, quick=1), setting.choose(full=64, quick=24)
    seeds = setting.seeds(repetitions)
    results = {(kind, marked): measured(setting, kind, marked, seeds, length) for marked in MARKED for kind in KINDS}
    return Report(
        "why",
        "What can attention reach that a convolution and a recurrent net of the same size cannot, and what has to wait "
        "for what?",
        (main_table(results, length), length_table(results, length), way_table(results, length)),
        (distance_picture(results, length),),
        finding(results, length),
        compared(*core_claims(setting, results), *course_claims(results, length)),
        setting.record(repetitions, trained_length=length, symbols=SYMBOLS),
        timing(setting, results),
        why="Attention replaced recurrent nets and convolutions in language models; this shows on a small task what it "
        "can do that they cannot.",
        setup=f"A sequence of {length} random symbols has one marked token, or {SEVERAL} with different marks, and its "
        "last token asks for the symbol under one mark. All three models have as many parameters, the same embeddings "
        f"and as many steps of training. The convolution sees {REACH} tokens back; the recurrent net hands one state "
        "from token to token; attention may look at any token directly.",
        takeaway=takeaway(results),
    )


def training_task(setting: Setting, kind: str, marked: int, seed: int, length: int) -> MarkRecall:
    """What is trained: shorter if quick."""
    return MarkRecall(
        seed=seed,
        steps=setting.choose(full=200, quick=120),
        rate=RATES[kind],
        rise=0.3,
        looks=10,
        kind=kind,
        length=length,
        marked=marked,
        batch=setting.choose(full=32, quick=24),
    )


def lengths(trained: int) -> tuple[int, ...]:
    """A quarter of the trained length, to four times it."""
    return tuple(trained * share // 4 for share in (1, 2, 4, 8, 16))


def measured(setting: Setting, kind: str, marked: int, seeds: list[int], length: int) -> RecallResults:
    """Train, and ask at the trained length and at others."""
    count = setting.choose(full=2000, quick=400)
    trained = [train(training_task(setting, kind, marked, seed, length)) for seed in seeds]
    models = [each.model for each in trained]
    generators = [torch.Generator().manual_seed(seed + 1) for seed in seeds]
    questions = [drawn(count, length, marked, generator) for generator in generators]
    others = {
        other: [
            right_answers(model, drawn(count // 4, other, marked, generator))
            for model, generator in zip(models, generators, strict=True)
        ]
        for other in lengths(length)
    }
    focus: list[Tensor] = []
    before: list[Tensor] = []
    if kind == "attention":
        with torch.random.fork_rng(devices=[]):
            for each, question in zip(trained, questions, strict=True):
                focus.append(task.focus(each.model, question))
                torch.manual_seed(each.task.seed)
                before.append(task.focus(each.task.model().eval(), question))
    probe = drawn(64, length, marked, torch.Generator().manual_seed(seeds[0] + 2))
    return RecallResults(
        trained,
        [right_answers(model, each) for model, each in zip(models, questions, strict=True)],
        [each.distance for each in questions],
        others,
        task.reach(recaller(trained), probe),
        focus,
        before,
    )


def recaller(trained: list[Trained]) -> task.Recaller:
    """The model of the first training."""
    model = trained[0].model
    assert isinstance(model, task.Recaller)
    return model


def main_table(results: Results, length: int) -> Table:
    """Right answers near and far."""
    spans = [(1, FARTHEST), *itertools.pairwise((1, REACH // 2 + 1, REACH + 1, FARTHEST))]
    rows: list[tuple[Cell, ...]] = [
        (*key, *(each.accuracy(low, high) for low, high in spans)) for key, each in results.items()
    ]
    trainings = len(results["attention", ONE].trained)
    what = f"{trainings} trainings" if trainings > 1 else "the sequences of one training"
    distances = (f"1 to {REACH // 2} back", f"{REACH // 2 + 1} to {REACH}", f"{REACH + 1} or more")
    columns = ("model", "to keep", "right", *distances)
    title = f"Trained and asked at {length} tokens (guessing: {1 / SYMBOLS:.3f}); mean and 95% interval over {what}"
    return Table(columns, rows, title)


def length_table(results: Results, length: int) -> Table:
    """Right answers at other lengths."""
    rows: list[tuple[Cell, ...]] = [
        (*key, *(over_trainings(each.others[other]) for other in lengths(length))) for key, each in results.items()
    ]
    columns = ("model", "to keep", *(f"{other} tokens" for other in lengths(length)))
    return Table(columns, rows, f"The same models at other lengths than the {length} of their training")


def way_table(results: Results, length: int) -> Table:
    """How far each sees, and over how many steps."""
    formula = {
        "attention": ("all", "1"),
        "convolution": (f"layers × (kernel − 1) = {REACH}", f"distance / {KERNEL - 1}, at most {LAYERS}"),
        "recurrence": ("all, through one state", "distance"),
    }
    rows: list[tuple[Cell, ...]] = []
    for kind in KINDS:
        one = results[kind, ONE]
        size = parameters(one.trained[0].model)
        rows.append((kind, size, one.reach, *formula[kind], *chains(results, kind, length)))
    sizes = (f"chain at {length}", f"at {2 * length}")
    columns = ("model", "parameters", "reach here", "reach", "steps on the way", *sizes)
    title = (
        "Reach: how far back gradients are not 0. Chain: the longest row of operations each of which waits for the one "
        "before"
    )
    return Table(columns, rows, title)


def chains(results: Results, kind: str, length: int) -> tuple[int, int]:
    """The longest chains at the trained length and at its double."""
    model = recaller(results[kind, ONE].trained)
    first, second = (task.chain(model.body, size, model.marks.embedding_dim) for size in (length, 2 * length))
    return first, second


def distance_picture(results: Results, length: int) -> Picture:
    """Right answers against the distance."""
    parts = []
    starts = [2**power for power in range((length - 1).bit_length())]  # every doubling of the distance
    for marked in MARKED:
        lines = [
            curve(kind, starts, [results[kind, marked].accuracy(low, 2 * low) for low in starts]) for kind in KINDS
        ]
        lines.append(Line("guessing", starts, [1 / SYMBOLS] * len(starts)))
        title = "one token to keep" if marked == ONE else f"{marked} tokens to keep"
        parts.append(Lines(lines, "tokens back (to the double)", "share right", title, log_x=True))
    return Panel(parts, f"Trained: what is recalled, by how far back it stands, in {length} tokens")


def core_claims(setting: Setting, results: Results) -> tuple[Claim, ...]:
    """Fixed operations, and what attention does instead."""
    generator = setting.generator()
    sequences = [
        torch.randn(4, 3 * REACH, task.fitted(kind, ONE), generator=generator) for kind in ("convolution", "recurrence")
    ]
    convolution, recurrence = (recaller(results[kind, ONE].trained).body for kind in ("convolution", "recurrence"))
    assert isinstance(convolution, task.Convolving)
    assert isinstance(recurrence, task.Recurring)
    attention = results["attention", SEVERAL]
    gained = [after - before for before, after in zip(attention.before, attention.focus, strict=True)]
    more = number(gained[0] if len(gained) == 1 else [float(each.mean()) for each in gained])
    begun = (
        f"before training {over_trainings(attention.before).mean:.2f}, after {over_trainings(attention.focus).mean:.2f}"
    )
    return (
        Claim(
            quoted(RESULTS, "Convolutions: same filter across all positions"),
            "largest difference between the answer to a slid sequence and the slid answer",
            task.slid(convolution, sequences[0], 7),
            below(SAME),
        ),
        Claim(
            quoted(RESULTS, "RNNs: same weights for all timesteps"),
            "largest difference between a pass and one step, repeated",
            task.stepped(recurrence, sequences[1]),
            below(SAME),
        ),
        Claim(
            quoted(RESULTS, "**The attention insight:** Let the model LEARN what to focus on."),
            "weight on the token that is asked for, gained by training",
            more,
            above(0),
            begun,
        ),
    )


def course_claims(results: Results, length: int) -> tuple[Claim, ...]:
    """Long range, and in parallel."""
    far = {kind: results[kind, SEVERAL].accuracy(REACH + 1) for kind in KINDS}
    others = ", ".join(f"{kind} {far[kind].mean:.2f}" for kind in KINDS if kind != "attention")
    grown = {kind: chains(results, kind, length) for kind in KINDS}
    parallel = quoted(MINI_COURSE, "Processing sequences in parallel (unlike RNNs)")
    chain = f"longest chain of operations at {2 * length} tokens over that at {length}"
    return (
        Claim(
            quoted(MINI_COURSE, "Capturing long-range dependencies between words"),
            f"right answers of attention about tokens more than {REACH} back",
            far["attention"],
            above(GOOD, "partly"),
            others,
        ),
        Claim(parallel, f"attention: {chain}", grown["attention"][1] / grown["attention"][0], below(1)),
        Claim(parallel, f"recurrence: {chain}", grown["recurrence"][1] / grown["recurrence"][0], above(1.5)),
    )


def timing(setting: Setting, results: Results) -> Timing:
    """A pass over longer and longer sequences, and the trainings."""
    sizes, width = setting.choose(full=(64, 256, 1024, 4096), quick=(64, 256, 1024)), 32
    turns = setting.choose(full=7, quick=3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        bodies = {kind: body(width).eval() for kind, body in KINDS.items()}
        inputs = [torch.randn(1, size, width) for size in sizes]
    calls = {
        size: {kind: partial(body, x) for kind, body in bodies.items()} for size, x in zip(sizes, inputs, strict=True)
    }
    times = timed(calls, turns)
    taken = [
        (*key, sum(float(one.record["seconds"]) for one in each.trained) / len(each.trained))
        for key, each in results.items()
    ]
    trained = Table(("model", "to keep", "seconds"), taken, "One training, one thread")
    passed = times.table("tokens", f"One pass over a sequence, width {width}")
    return Timing((passed, trained), times.pictures("tokens", "Measured time of one pass over a sequence"))


def takeaway(results: Results) -> Takeaway:
    """What attention reaches."""
    reached = {kind: results[kind, SEVERAL].accuracy(REACH + 1) for kind in KINDS}
    return Takeaway(
        "Attention recalls what stands far back even if several things must be kept; a convolution of the same size "
        "does not see that far.",
        "With this training attention does not recall far tokens better than a convolution of the same size.",
        (
            Evidence(f"right answers of attention, more than {REACH} back", reached["attention"], above(HALF)),
            Evidence(f"right answers of the convolution, more than {REACH} back", reached["convolution"], below(0.25)),
        ),
    )


def finding(results: Results, length: int) -> str:
    """One sentence, from the numbers."""

    def shares(marked: int) -> str:
        return ", ".join(f"{kind} {results[kind, marked].accuracy(REACH + 1).mean:.0%}" for kind in KINDS)

    attention = results["attention", SEVERAL]
    return (
        f"Asked for one token more than {REACH} back, the models are right in these shares: {shares(ONE)}; with "
        f"{SEVERAL} tokens to keep: {shares(SEVERAL)} (guessing {1 / SYMBOLS:.0%}). The convolution sees "
        f"{results['convolution', ONE].reach} tokens back and no further; the recurrent net sees all, but "
        f"through one state that {length} steps pass on one after the other; attention looks at the token itself, "
        f"which after training has {over_trainings(attention.focus).mean:.2f} of the weight (before: "
        f"{over_trainings(attention.before).mean:.2f})."
    )
