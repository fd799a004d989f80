"""why: attention, a convolution and a recurrent net are asked for something that stands far back.

A sequence of random symbols has one marked token, or four with different marks; the last token asks for the symbol
under one of them. All three models have the same number of parameters and steps, and begin with the same embeddings.
"""

import torch
from torch import Tensor

from regard.inspection.records import Cell, Line, Lines, Table
from regard.lab import sources
from regard.lab.report import Claim, Compared, Report, Timing, settings
from regard.lab.setting import Setting
from regard.lab.training import train
from regard.lab.why import measure
from regard.lab.why.found import KEPT, Found, lengths, of, over
from regard.lab.why.models import KINDS, REACH, Convolving, Recaller, Recurring, fitted, parameters
from regard.lab.why.tables import chains, distance_picture, length_table, main_table, way_table
from regard.lab.why.task import SYMBOLS, Recalling, drawn

MOST = 10_000  # parameters
RATES = {"attention": 0.01, "convolution": 0.02, "recurrence": 0.01}
GOOD = 0.9


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions, length = setting.choose(full=3, quick=1), setting.choose(full=64, quick=24)
    seeds = torch.randint(2**31, (repetitions,), generator=setting.generator()).tolist()
    found = [asked(setting, kind, kept, seeds, length) for kept in KEPT for kind in KINDS]
    return Report(
        "why",
        "What can attention reach that a convolution and a recurrent net of the same size cannot, and what has to wait "
        "for what?",
        (main_table(found, length), length_table(found, length), way_table(found, length)),
        (distance_picture(found, length),),
        finding(found, length),
        (
            Compared(f"{sources.RESULTS}, The core problem", core_claims(setting, found, length)),
            Compared(f"{sources.MINI_COURSE}, What is attention?", course_claims(found, length)),
        ),
        {**settings(setting, repetitions), "trained length": length, "symbols": SYMBOLS},
        timing(setting, found),
    )


def task(setting: Setting, kind: str, kept: int, seed: int, length: int) -> Recalling:
    """What is trained: shorter if quick."""
    return Recalling(
        seed=seed,
        steps=setting.choose(full=200, quick=120),
        rate=RATES[kind],
        rise=0.3,
        looks=10,
        kind=kind,
        length=length,
        kept=kept,
        most=MOST,
        batch=setting.choose(full=32, quick=24),
    )


def asked(setting: Setting, kind: str, kept: int, seeds: list[int], length: int) -> Found:
    """Train, and ask."""
    count = setting.choose(full=2000, quick=400)
    trained = [train(task(setting, kind, kept, seed, length)) for seed in seeds]
    models = [each.model for each in trained]
    generators = [torch.Generator().manual_seed(seed + 1) for seed in seeds]
    questions = [drawn(count, length, kept, generator) for generator in generators]
    others = {
        other: [
            measure.right(model, drawn(count // 4, other, kept, generator))
            for model, generator in zip(models, generators, strict=True)
        ]
        for other in lengths(length)
    }
    looks: list[Tensor] = []
    before: list[Tensor] = []
    if kind == "attention":
        looks = [measure.focus(model, each) for model, each in zip(models, questions, strict=True)]
        with torch.random.fork_rng(devices=[]):
            for each, question in zip(trained, questions, strict=True):
                torch.manual_seed(each.task.seed)
                before.append(measure.focus(each.task.model().eval(), question))
    model = models[0]
    assert isinstance(model, Recaller)
    return Found(
        kind,
        kept,
        trained,
        [measure.right(model, each) for model, each in zip(models, questions, strict=True)],
        [each.distance for each in questions],
        others,
        measure.reach(model, drawn(64, length, kept, torch.Generator().manual_seed(seeds[0] + 2))),
        looks,
        before,
    )


def core_claims(setting: Setting, found: list[Found], length: int) -> tuple[Claim, ...]:
    """Fixed operations, and what attention does instead."""
    generator = setting.generator()
    bodies = {kind: of(found, kind, KEPT[0]).trained[0].model for kind in KINDS}
    convolution, recurrence = bodies["convolution"].body, bodies["recurrence"].body
    assert isinstance(convolution, Convolving)
    assert isinstance(recurrence, Recurring)

    def sequence(kind: str) -> Tensor:
        width = fitted(kind, SYMBOLS, KEPT[0], MOST)
        return torch.randn(4, 3 * REACH, width, generator=generator)

    filters = measure.slid(convolution, sequence("convolution"), 7)
    steps = measure.stepped(recurrence, sequence("recurrence"))
    attention = of(found, "attention", KEPT[-1])
    begun, learned = over(attention.before), over(attention.focus)
    sure = "confirmed" if learned.low > begun.high else "not shown"
    return (
        Claim("convolutions", "same filter at all positions", filters, _same(filters, "slid by 7, the answer slides")),
        Claim("RNNs", "same weights at all steps", steps, _same(steps, "one step, repeated")),
        Claim(
            "attention",
            "LEARNS what to focus on",
            learned,
            f"{sure}: weight on what is asked for, first {begun.mean:.2f}",
        ),
        Claim(
            "parameters",
            "",
            parameters(attention.trained[0].model),
            "not said: the same at all positions and lengths in all three",
        ),
    )


def _same(error: float, what: str) -> str:
    return f"{'confirmed' if error < 1e-4 else 'corrected'}: {what}; largest difference"


def course_claims(found: list[Found], length: int) -> tuple[Claim, ...]:
    """Long range, and in parallel."""
    far = {kind: of(found, kind, KEPT[-1]).accuracy(REACH + 1) for kind in KINDS}
    least = min(far["attention"].low, 1.0)
    ahead = all(least > far[kind].high for kind in KINDS if kind != "attention")
    long = "confirmed" if far["attention"].mean >= GOOD else "partly"
    others = ", ".join(f"{kind} {far[kind].mean:.2f}" for kind in KINDS if kind != "attention")
    grown = {kind: chains(found, kind, length) for kind in KINDS}
    still = grown["attention"][0] == grown["attention"][1]
    waits = grown["recurrence"][1] > 1.5 * grown["recurrence"][0]
    parallel = "confirmed" if still and waits else "corrected"
    told = f"{parallel}: recurrence {grown['recurrence'][0]} and {grown['recurrence'][1]}"
    return (
        Claim("long-range", "captured", far["attention"], f"{long}{', alone' if ahead else ''}: {others}"),
        Claim(
            f"parallel, chain at {length}, {2 * length}", "unlike RNNs", "{} and {}".format(*grown["attention"]), told
        ),
    )


def timing(setting: Setting, found: list[Found]) -> Timing:
    """A pass over longer and longer sequences, and the trainings."""
    sizes = setting.choose(full=(64, 256, 1024, 4096), quick=(64, 256, 1024))
    width = 32
    best = measure.seconds(sizes, width, setting.choose(full=7, quick=3))
    rows: list[tuple[Cell, ...]] = [
        (f"{size:,}", *(1e3 * best[kind][place] for kind in KINDS)) for place, size in enumerate(sizes)
    ]
    passed = Table(("tokens", *(f"{kind} (ms)" for kind in KINDS)), rows, f"One pass, width {width}, best of several")
    taken = [
        (each.kind, each.kept, sum(float(one.record["seconds"]) for one in each.trained) / len(each.trained))
        for each in found
    ]
    trained = Table(("model", "to keep", "seconds"), taken, "One training, one thread")
    lines = [Line(kind, sizes, [1e3 * each for each in best[kind]]) for kind in KINDS]
    picture = Lines(lines, "tokens", "ms", "One pass over a sequence", log_x=True, log_y=True)
    return Timing((passed, trained), (picture,))


def finding(found: list[Found], length: int) -> str:
    """One sentence, from the numbers."""

    def told(kept: int) -> str:
        return ", ".join(f"{kind} {of(found, kind, kept).accuracy(REACH + 1).mean:.0%}" for kind in KINDS)

    attention = of(found, "attention", KEPT[-1])
    return (
        f"Asked for one token more than {REACH} back, the models are right in these shares: {told(KEPT[0])}; with "
        f"{KEPT[-1]} tokens to keep: {told(KEPT[-1])} (guessing {1 / SYMBOLS:.0%}). The convolution sees "
        f"{of(found, 'convolution', KEPT[0]).reach} tokens back and no further; the recurrent net sees all, but "
        f"through one state that {length} steps pass on one after the other; attention looks at the token itself, "
        f"which after training has {over(attention.focus).mean:.2f} of the weight (before: "
        f"{over(attention.before).mean:.2f})."
    )
