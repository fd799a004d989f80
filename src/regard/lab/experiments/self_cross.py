"""self-cross: what changes when keys and values come from another sequence.

The laws are tried on random layers, whose weights do not matter. The maps, and what each attention is worth, come from
the models that `regard lab translation` trains: they have self-attention over English and over French, and
cross-attention from French to English.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.records import Bars, Cell, Estimate, Grid, Panel, Picture, Table
from regard.lab import sources
from regard.lab.experiments.translation import task
from regard.lab.report import Claim, Compared, Report, settings
from regard.lab.self_cross import measure
from regard.lab.self_cross.examples import cost_table, example_table
from regard.lab.self_cross.laws import KEYS, LAWS, QUERIES, ROUNDING, Draw, draw, holds
from regard.lab.setting import Setting
from regard.lab.training import train
from regard.lab.training.over import number, share
from regard.lab.translation import corpus, examples
from regard.lab.translation.task import SCALED

START = "<start>"
SHUFFLED = [4, 2, 0, 5, 1, 3]  # the order of English words in the picture


@dataclass(frozen=True)
class Run:
    """One trained model: its maps of unseen sentences, and words right by what was changed."""

    maps: dict[str, list[Tensor]]
    cat: dict[str, Tensor]
    moved: Tensor
    right: dict[str, float]


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions, tested = setting.choose(full=3, quick=2), setting.choose(full=500, quick=100)
    generator = setting.generator()
    # the seeds of `regard lab translation`, so that a model is trained once for both
    seeds = torch.randint(2**31, (repetitions,), generator=setting.generator()).tolist()
    runs = [measured(setting, seed, tested) for seed in seeds]
    draws = [draw(generator) for _ in range(setting.choose(full=200, quick=50))]
    return Report(
        "self-cross",
        "What changes when keys and values come from another sequence?",
        (map_table(runs), worth_table(runs), law_table(draws), example_table(), cost_table()),
        (map_picture(runs[0]), worth_picture(runs), shuffled_picture(runs[0])),
        finding(runs, draws),
        (Compared(f"{sources.RESULTS}, Self-Attention vs Cross-Attention", claims(runs, draws)),),
        {**settings(setting, repetitions), "test sentences": tested, "random layers": len(draws)},
    )


def measured(setting: Setting, seed: int, tested: int) -> Run:
    """What a model makes of sentences it has not seen."""
    model = train(task(setting, SCALED, seed)).model
    unseen = corpus.sentences(tested, seed, unseen=True)
    cat = {name: tables[0] for name, tables in measure.maps(model, [examples.cat()]).items()}
    right = measure.words_right(model, unseen, torch.Generator().manual_seed(seed))
    return Run(measure.maps(model, unseen), cat, measure.shuffled_map(model, examples.cat(), SHUFFLED), right)


def map_table(runs: list[Run]) -> Table:
    """The three attentions of the trained model."""
    rows: list[tuple[Cell, ...]] = []
    for place in measure.PLACES:
        tables = [each.maps[place.name] for each in runs]
        rows.append(
            (
                place.name,
                place.asks,
                place.looked_at,
                " × ".join(map(str, runs[0].cat[place.name].shape)),
                share([measure.square(each) for each in tables]),
                number([measure.keys_in_use(each) for each in tables]),
                share([measure.same_place(each) for each in tables]),
            )
        )
    columns = ("attention", "Q from", "K, V from", "cat map", "square maps", "keys in use", "weight on its place")
    return Table(columns, rows, f"Trained here, unseen sentences; mean and 95% interval over {len(runs)} trainings")


def worth_table(runs: list[Run]) -> Table:
    """Words right when one attention is changed."""
    rows = [(name, share([each.right[name] for each in runs])) for name in runs[0].right]
    return Table(("what is changed", "words right"), rows, "Each French word, given the right ones before it")


def law_table(draws: list[Draw]) -> Table:
    """What holds for any weights."""
    rows = [(law.done, *(f"{law.says(own)}: {_size(law.apart(draws, own))}" for own in (True, False))) for law in LAWS]
    title = (
        f"What the output does, and by how much at most it differs from that (changes: at least), in {len(draws)} "
        f"random layers; X has {QUERIES} tokens, Y {KEYS}, and in self-attention Y is X"
    )
    return Table(("done", "self", "cross"), rows, title)


def _size(apart: Tensor) -> str:
    """The largest difference if all are rounding, else the smallest."""
    largest = float(apart.max())
    if largest == 0:
        return "0"
    return f"{largest:.0e}" if largest < ROUNDING else f"{float(apart.min()):.2f}"


def _words() -> dict[str, tuple[list[str], list[str]]]:
    """Row and column labels of the cat maps. The decoder's row for a word stands on the word before it."""
    english, french = examples.labels(examples.cat())
    return {
        measure.ENCODER.name: (english, english),
        measure.DECODER.name: (french, [START, *french[:-1]]),
        measure.CROSS.name: (french, english),
    }


def map_picture(run: Run) -> Picture:
    """The three maps of the seed's sentence."""
    grids = []
    for place in measure.PLACES:
        rows, columns = _words()[place.name]
        table = run.cat[place.name].tolist()
        values = [
            [None if place is measure.DECODER and column > row else value for column, value in enumerate(line)]
            for row, line in enumerate(table)
        ]
        shape = f"{len(rows)} × {len(columns)}"
        grids.append(Grid(values, rows, columns, f"{place.name}, {shape}", limits=(0.0, 1.0)))
    return Panel(grids, "Trained: who looks at whom in The cat sits on the mat")


def shuffled_picture(run: Run) -> Picture:
    """Cross-attention over the encoder's outputs in another order."""
    rows, columns = _words()[measure.CROSS.name]
    grids = (
        Grid(run.cat[measure.CROSS.name].tolist(), rows, columns, "in order", limits=(0.0, 1.0)),
        Grid(run.moved.tolist(), rows, [columns[place] for place in SHUFFLED], "shuffled", limits=(0.0, 1.0)),
    )
    return Panel(grids, "Encoder outputs in another order: columns move, nothing else")


def worth_picture(runs: list[Run]) -> Picture:
    """Words right with each attention changed."""
    labels = [measure.INTACT, *(place.name for place in measure.PLACES)]
    series = {}
    for name, _ in measure.CHANGES:
        changed = [measure.INTACT, *(f"{place.name}: {name}" for place in measure.PLACES)]
        series[name] = [share([each.right[which] for each in runs]).mean for which in changed]
    return Bars(labels, series, "words right", "What each attention is worth")


def _lost(runs: list[Run], name: str) -> Estimate:
    """Words that a change costs, of those right."""
    return number([each.right[measure.INTACT] - each.right[name] for each in runs])


def claims(runs: list[Run], draws: list[Draw]) -> tuple[Claim, ...]:
    """The table of the seed, and its examples."""
    independent = next(law for law in LAWS if law.done == "another token of X changed")
    equal, removed = (name for name, _ in measure.CHANGES)
    shapes = {place.name: runs[0].cat[place.name].shape for place in measure.PLACES}
    cross = shapes[measure.CROSS.name]
    within, between = (_lost(runs, f"{place.name}: {removed}") for place in (measure.ENCODER, measure.CROSS))
    flat = _lost(runs, f"{measure.CROSS.name}: {equal}")
    other = _lost(runs, measure.OTHER)
    own_moves, other_stays = (holds(independent, draws, own) for own in (True, False))
    return (
        Claim(
            "self: Q, K and V from X",
            "n × n",
            " × ".join(map(str, shapes[measure.ENCODER.name])),
            _verdict(shapes[measure.ENCODER.name][0] == shapes[measure.ENCODER.name][1]),
        ),
        Claim(
            "cross: K and V from Y",
            "n × m",
            " × ".join(map(str, cross)),
            _verdict(tuple(cross) == (len(examples.cat().french), len(examples.cat().english))),
        ),
        Claim(
            "self: within-sequence patterns",
            "tokens of X meet",
            "another token of X changes the output" if own_moves else "no change",
            _verdict(own_moves),
        ),
        Claim(
            "cross: between-sequence patterns",
            "X meets Y",
            "tokens of X do not meet" if other_stays else "tokens of X meet",
            _verdict(other_stays),
        ),
        Claim("encoder looks at itself", "used", within, f"{_worth(within)}: words lost without it"),
        Claim("decoder looks at the encoder", "used", between, f"{_worth(between)}: words lost without it"),
        Claim("what is looked at matters", "yes", flat, f"{_worth(flat)}: words lost with equal weights"),
        Claim("Y conditions what X becomes", "yes", other, f"{_worth(other)}: words lost with another Y"),
    )


def _verdict(right: bool) -> str:
    return "confirmed" if right else "not confirmed"


def _worth(lost: Estimate) -> str:
    return "confirmed" if lost.low > 0 else "not shown" if lost.high > 0 else "not confirmed"


def finding(runs: list[Run], draws: list[Draw]) -> str:
    """One sentence, from the numbers."""
    right = {name: share([each.right[name] for each in runs]).mean for name in runs[0].right}
    removed = measure.CHANGES[1][0]
    without = ", ".join(f"{right[f'{place.name}: {removed}']:.0%} without {place.name}" for place in measure.PLACES)
    held = sum(holds(law, draws, own) for law in LAWS for own in (True, False))
    rows, columns = runs[0].cat[measure.CROSS.name].shape
    return (
        f"Cross-attention is the same operation over another sequence: its map is n × m ({rows} × {columns} for the "
        f"seed's sentence), costs n · m pairs, and its queries do not see each other ({held} of {2 * len(LAWS)} laws "
        f"hold in all {len(draws)} random layers); the trained translation model gets {right[measure.INTACT]:.0%} of "
        f"the words right, {without}; with the encoder's outputs in another order it gets {right[measure.MEMORY]:.0%}, "
        f"with the English words themselves in another order {right[measure.WORDS]:.0%}."
    )
