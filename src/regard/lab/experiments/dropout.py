"""dropout: what is dropped from attention, what stays the same on average, and what it is good for.

Dropout strikes single weights after softmax, in each head its own, and multiplies those that stay by 1/(1 − p). The
mean of every weight stays; a row sums to 1 on average only, with a variance of p/(1 − p) · Σ w². A small reader is
trained on few texts, which it can learn by heart, with several rates; everything is measured without dropout.
"""

from dataclasses import dataclass

import torch

from regard.inspection.records import Cell, Estimate, Grid, Line, Lines, Panel, Picture, Table
from regard.inspection.statistics import mean
from regard.lab import sources
from regard.lab.curves import curve
from regard.lab.draws import KEYS
from regard.lab.dropout.measure import HEADS, Dropped, Read, dropped, hidden, read
from regard.lab.dropout.task import Reading
from regard.lab.report import Claim, Compared, Report, Timing, settings
from regard.lab.setting import Setting
from regard.lab.training import Trained, train
from regard.lab.training.over import during, number, share

EXACT = 1e-12  # what float64 leaves of zero here
SHOWN = 8  # rows and columns of the picture of a map
PRESETS = (  # model, the seed's rate, where its makers published it
    ("BERT", 0.1, "0.1", "attention_probs_dropout_prob of its configuration"),
    ("GPT-2", 0.1, "0.1", "attn_pdrop of its configuration"),
    ("GPT-3", 0.0, "not given", "its paper names no rate of dropout"),
)


@dataclass(frozen=True)
class Run:
    """One training, and what its reader makes of texts."""

    trained: Trained
    read: Read


Runs = dict[float, list[Run]]  # by rate
Random = dict[float, Dropped]


def run(setting: Setting) -> Report:
    """Run the experiment."""
    draws, repetitions = setting.choose(full=400, quick=60), setting.choose(full=6, quick=3)
    rates = setting.choose(full=(0.0, 0.1, 0.2, 0.3, 0.5, 0.7), quick=(0.0, 0.1, 0.5))
    generator = setting.generator()
    random = {p: dropped(generator, draws, p) for p in (0.1, 0.3, 0.5)}
    before = hidden(generator, draws, 0.1)
    seeds = torch.randint(2**31, (repetitions,), generator=generator).tolist()
    runs = {p: [trained(setting, p, seed) for seed in seeds] for p in rates}
    return Report(
        "dropout",
        "What does attention dropout drop, what does it leave as it was, and does it keep a model from learning by "
        "heart?",
        (random_table(random, before), trained_table(runs), preset_table(random)),
        (map_picture(random[0.3]), sum_picture(random), training_picture(runs)),
        finding(random, runs),
        (Compared(f"{sources.CONCEPTS}, section 5", claims(random, runs)),),
        {**settings(setting, draws), "trainings of each rate": repetitions, "steps": runs[0.0][0].trained.task.steps},
        Timing((_seconds(runs),), ()),
    )


def task(setting: Setting, p: float, seed: int) -> Reading:
    """What is trained: a reader of topics, with 64 texts to learn from."""
    return Reading(
        seed=seed,
        steps=setting.choose(full=150, quick=80),
        rate=1e-2,
        rise=0.1,
        looks=setting.choose(full=15, quick=8),
        dropout=p,
        texts=64,
        length=24,
        topics=4,
        own=12,
        common=60,
        hint=0.25,
        width=32,
        heads=HEADS,
    )


def trained(setting: Setting, p: float, seed: int) -> Run:
    """One training, looked at."""
    asked = task(setting, p, seed)
    found = train(asked)
    return Run(found, read(found.model, asked.seen, asked.new, HEADS, torch.Generator().manual_seed(seed + 3)))


def random_table(random: Random, before: torch.Tensor) -> Table:
    """What is dropped, what is kept, and the sums of rows."""
    rows: list[tuple[Cell, ...]] = []
    for p, found in random.items():
        gone, sums = found.gone, found.sums
        rows.append(
            (
                f"{p:g}",
                mean(gone.double().mean((1, 2, 3))),
                mean(found.kept),
                float(sums.std()),
                found.spread,
                _range(sums),
                f"{int(gone.all(-1).all(-1).sum())} of {gone.shape[0] * HEADS:,}",
                mean(found.together),
            )
        )
    rows.append(
        ("0.1, before softmax", "", mean(before.mean((1, 2))), float(before.std()), 0.0, _range(before), "", "")
    )
    columns = (
        *("p", "pairs dropped", "weight left", "std of row sums", "√(p/(1−p) Σw²)", "95% of row sums"),
        *("heads dropped whole", "correlation of heads"),
    )
    return Table(columns, rows, f"Random self-attention, {HEADS} heads, {KEYS} keys; mean and 95% interval")


def _range(sums: torch.Tensor) -> str:
    low, high = torch.quantile(sums.flatten()[: 10**6], torch.tensor([0.025, 0.975], dtype=sums.dtype)).tolist()
    return f"{low:.2f} to {high:.2f}"


def column(runs: Runs, p: float, name: str) -> Estimate:
    """A share of what the readers do with one rate."""
    return share([getattr(each.read, name) for each in runs[p]])


def loss(runs: Runs, p: float) -> Estimate:
    """The loss on new texts at the end."""
    return number([each.trained.column("new")[-1] for each in runs[p]])


def trained_table(runs: Runs) -> Table:
    """What each rate does to the readers."""
    rows = [
        (
            f"{p:g}",
            column(runs, p, "trained_on"),
            column(runs, p, "new"),
            loss(runs, p),
            number([each.read.words for each in runs[p]]),
            column(runs, p, "half"),
            column(runs, p, "headless"),
        )
        for p in runs
    ]
    asked = runs[0.0][0].trained.task
    assert isinstance(asked, Reading)
    title = (
        f"Trained: the topic (of {asked.topics}) of texts of {asked.length} words, from {asked.texts} texts; share of "
        f"topics found without dropout, mean and 95% interval over {len(runs[0.0])} trainings"
    )
    columns = (
        *("p", "texts trained on", "new texts", "loss, new", f"words in use, of {asked.length}"),
        *("half the words", "one head less"),
    )
    return Table(columns, rows, title)


def preset_table(random: Random) -> Table:
    """Rates of known models, and what they do to a row."""
    rows = [
        (model, seed, published, where, f"{random[seed].spread:.3f}" if seed in random else "0")
        for model, seed, published, where in PRESETS
    ]
    columns = ("model", "the seed", "published", "where", "std of row sums at that rate")
    return Table(columns, rows, "Rates of known models; nothing is measured in them here")


def map_picture(found: Dropped) -> Picture:
    """A corner of two heads before and after; what was dropped is blank."""
    grids = []
    limits = (0.0, float(found.after[0, :2, :SHOWN, :SHOWN].max()))
    for head in range(2):
        before, after = (each[0, head, :SHOWN, :SHOWN].tolist() for each in (found.before, found.after))
        grids.append(Grid(before, title=f"head {head + 1}: weights", limits=limits))
        rows = [[value or None for value in row] for row in after]
        name = f"head {head + 1}: dropped with p = {found.p:g}"
        grids.append(Grid(rows, title=name, note="hatched: dropped", limits=limits))
    return Panel(grids, "Single pairs are dropped, in each head its own; the others grow")


def sum_picture(random: Random) -> Picture:
    """How row sums are distributed."""
    edges = torch.linspace(0, 2.5, 51, dtype=torch.float64)
    middles = ((edges[1:] + edges[:-1]) / 2).tolist()
    lines = []
    for p, found in random.items():
        counts = torch.histogram(found.sums.flatten(), edges).hist
        lines.append(Line(f"p = {p:g}", middles, (counts / counts.sum() / float(edges[1])).tolist()))
    return Lines(lines, "sum of a row", "density", "Rows no longer sum to 1")


def training_picture(runs: Runs) -> Picture:
    """Losses on new texts during training, and topics found at the end."""
    shown = [p for p in (0.0, 0.1, 0.3, 0.5) if p in runs]
    lines = [during([each.trained for each in runs[p]], "new", f"p = {p:g}") for p in shown]
    names = {"trained_on": "texts trained on", "new": "new texts", "half": "new, half the words"}
    ends = [curve(shown, list(runs), [column(runs, p, name) for p in runs]) for name, shown in names.items()]
    return Panel(
        (
            Lines(lines, "step", "loss (nats)", f"New texts, mean and range of {len(runs[0.0])} runs"),
            Lines(ends, "p", "share of topics found", "After training"),
        )
    )


def gain(runs: Runs, p: float, name: str) -> Estimate:
    """How much more a rate gives than none, training by training with the same texts."""
    pairs = zip(runs[p], runs[0.0], strict=True)
    return number([getattr(one.read, name) - getattr(none.read, name) for one, none in pairs])


def claims(random: Random, runs: Runs) -> tuple[Claim, ...]:
    """What is said of dropout."""
    tenth = random[0.1]
    heads, whole = tenth.gone.shape[0] * HEADS, int(tenth.gone.all(-1).all(-1).sum())
    better = gain(runs, max(runs), "new")
    words = [number([each.read.words for each in runs[p]]) for p in (0.0, max(runs))]
    lost = [gain_of_heads(runs, p) for p in (0.0, max(runs))]
    return (
        Claim("output = Dropout(weights) × V, p = 0.1", "no factor", mean(tenth.kept), _kept(tenth)),
        Claim("rows still sum to 1", "not said", _range(tenth.sums), _sums(tenth)),
        Claim(
            "prevents over-reliance: new texts",
            "better",
            better,
            f"{_above(better)}: topics gained by p = {max(runs):g}",
        ),
        Claim(
            "several tokens, not just one",
            "yes",
            f"{words[0].mean:.1f} to {words[1].mean:.1f}",
            f"{_verdict(words[1].low > words[0].mean)}: words in use, p = 0 to {max(runs):g}",
        ),
        Claim(
            "heads cannot rely on other heads",
            "yes",
            f"{whole} of {heads:,}",
            "corrected: heads dropped whole; it strikes pairs" if not whole else "confirmed: heads dropped whole",
        ),
        Claim(
            "… a trained head is missed less",
            "yes",
            f"{lost[0].mean:.3f} to {lost[1].mean:.3f}",
            f"{_verdict(lost[1].high < lost[0].mean)}: topics lost with a head, p = 0 to {max(runs):g}",
        ),
        *(
            Claim(f"rate of {model}", seed, said, f"{_same(seed, said)}: {where}")
            for model, seed, said, where in PRESETS
        ),
    )


def gain_of_heads(runs: Runs, p: float) -> Estimate:
    """Topics lost when one head is ablated."""
    return number([each.read.new - each.read.headless for each in runs[p]])


def _same(seed: float, published: str) -> str:
    return "confirmed as published" if published == f"{seed:g}" else "not shown"


def _kept(found: Dropped) -> str:
    left = mean(found.kept)
    if left.high < 1 - found.p / 2:
        return f"confirmed, no factor: {1 - found.p:g} of the weight stays"
    return f"corrected: × 1/(1 − p) keeps the mean; without it {1 - found.p:g} of the weight would stay"


def _sums(found: Dropped) -> str:
    return (
        "not said: yes"
        if float(found.sums.std()) < EXACT
        else f"not said: on average only, ± {float(found.sums.std()):.2f}"
    )


def _above(found: Estimate) -> str:
    return "confirmed" if found.low > 0 else "not shown" if found.high > 0 else "corrected"


def _verdict(holds: bool) -> str:
    return "confirmed" if holds else "not shown"


def _seconds(runs: Runs) -> Table:
    every = [each.trained.record["seconds"] for group in runs.values() for each in group]
    return Table(("trainings", "seconds each"), [(len(every), number(every))], "Training, one thread")


def finding(random: Random, runs: Runs) -> str:
    """One sentence, from the numbers."""
    most = max(runs)
    tenth = random[0.1]
    seen, new, words = (
        [number([getattr(each.read, name) for each in runs[p]]).mean for p in (0.0, most)]
        for name in ("trained_on", "new", "words")
    )
    return (
        f"With p = 0.1 a row of {KEYS} weights sums to {_range(tenth.sums)} (95%), on average to "
        f"{mean(tenth.kept).mean:.3f}; a reader that knows {seen[0]:.0%} of the texts it was trained on finds "
        f"{new[0]:.0%} of new topics without dropout and {new[1]:.0%} with p = {most:g}, where its heads use "
        f"{words[1]:.1f} words instead of {words[0]:.1f}."
    )
