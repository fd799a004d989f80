"""self-cross: what changes when keys and values come from another sequence.

The laws are tried on random layers, whose weights do not matter. The maps, and what each attention is worth, come from
the models that `regard lab translation` trains: they have self-attention over English and over French, and
cross-attention from French to English.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch import nn as torch_nn

from regard import nn
from regard.inspection.capture import capture
from regard.inspection.interventions import Ablate, Uniform, intervene
from regard.inspection.records import Bars, Cell, Estimate, Grid, Panel, Picture, Table
from regard.lab.layers import cost_table, example_table
from regard.lab.maps import normal
from regard.lab.report import (
    RESULTS,
    Claim,
    Evidence,
    Report,
    Takeaway,
    above,
    below,
    compared,
    quoted,
)
from regard.lab.setting import Setting
from regard.lab.statistics import number, positive, share
from regard.lab.training import train
from regard.lab.translation import grammar, training_task
from regard.lab.translation.grammar import PAD, Pair, sources, targets
from regard.lab.translation.task import ATTENTIONS, CROSS, DECODER, ENCODER, SCALED, attention_maps
from regard.spec.masks import Lengths

QUERIES, KEYS, WIDTH, HEADS = 7, 6, 32, 4  # of random layers
STAYS, MOVES, ALONG = "stays", "changes", "is shuffled along"
ROUNDING, MOVED = 1e-12, 1e-3  # differences below and above which an output stays, and changes
INTACT, UNIFORM, REMOVED = "intact", "equal weights", "output removed"
CHANGES = {UNIFORM: Uniform(), REMOVED: Ablate()}
MEMORY, WORDS, OTHER = "encoder outputs shuffled", "English words shuffled", "another sentence's outputs"
SELF_ROW = "| Self-Attention | Sequence X | Same X | Within-sequence patterns |"
CROSS_ROW = "| Cross-Attention | Sequence X | Different Y | Between-sequence patterns |"
SHUFFLED = [4, 2, 0, 5, 1, 3]  # the order of English words in the picture


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions, tested = setting.choose(full=3, quick=2), setting.choose(full=500, quick=100)
    generator = setting.generator()
    # the seeds of `regard lab translation`, so that a model is trained once for both
    seeds = setting.seeds(repetitions)
    runs = [measured(setting, seed, tested) for seed in seeds]
    draws = [draw(generator) for _ in range(setting.choose(full=200, quick=50))]
    return Report(
        "self-cross",
        "What changes when keys and values come from another sequence?",
        (*trained_tables(runs), law_table(draws), example_table(), cost_table()),
        (map_picture(runs[0]), worth_picture(runs), shuffled_picture(runs[0])),
        finding(runs, draws),
        compared(*claims(runs, draws)),
        setting.record(repetitions, test_sentences=tested, random_layers=len(draws)),
        why="Translation, captions and pictures from text all rest on cross-attention: one sequence asks another.",
        setup="In self-attention queries, keys and values come from one sequence X; in cross-attention keys and values "
        "come from another one, Y. Random layers show what that changes exactly; a translation model shows what each "
        "of its attentions is worth, when its weights are made equal or its output is removed.",
        takeaway=takeaway(runs, draws),
    )


@dataclass(frozen=True)
class RandomLayer:
    """A layer, a sequence x of queries, a sequence y of keys and values, and an order to shuffle either by."""

    layer: nn.MultiHeadAttention
    x: Tensor
    y: Tensor
    order: Tensor

    def attend(self, x: Tensor) -> Tensor:
        """The output for queries x, which in self-attention (y is x) are the keys too."""
        output: Tensor = self.layer(x, x if self.y is self.x else self.y)
        return output

    def shuffled(self, rows: Tensor) -> Tensor:
        """The rows in another order."""
        return rows[:, self.order[self.order < rows.shape[1]]]


def draw(generator: torch.Generator) -> RandomLayer:
    """Random weights and sequences in float64."""
    layer = nn.MultiHeadAttention(WIDTH, HEADS).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(normal(generator, *parameter.shape) / WIDTH**0.5)
    x, y = normal(generator, 1, QUERIES, WIDTH), normal(generator, 1, KEYS, WIDTH)
    while True:  # until the order moves something even where it is cut to the shorter sequence
        order = torch.randperm(max(QUERIES, KEYS), generator=generator)
        if not order[order < min(QUERIES, KEYS)].diff().gt(0).all():
            return RandomLayer(layer, x, y, order)


def _padded(given: RandomLayer) -> Tensor:
    """Add rows of noise to y and hide them."""
    longer = torch.cat([given.y, 100 * given.shuffled(given.y)], 1)
    padded: Tensor = given.layer(given.x, longer, mask=Lengths(torch.tensor([given.y.shape[1]])))
    return padded - given.attend(given.x)


def _query_changed(given: RandomLayer) -> Tensor:
    """Change the last token of x, and look at the first output."""
    x = given.x.clone()
    x[:, -1] = given.y[:, 0] + 1
    return (given.attend(x) - given.attend(given.x))[:, 0]


def _key_changed(given: RandomLayer) -> Tensor:
    """Change the last token of y alone, and look at the first output."""
    y = given.y.clone()
    y[:, -1] = given.x[:, 0] + 1
    changed: Tensor = given.layer(given.x, y)
    return (changed - given.attend(given.x))[:, 0]


@dataclass(frozen=True)
class Law:
    """What is done, what the output then does in self- and in cross-attention, and the difference from that."""

    done: str
    own: str
    other: str
    difference: Callable[[RandomLayer], Tensor]

    def apart(self, draws: list[RandomLayer], own: bool) -> Tensor:
        """The largest difference for each draw; `own` replaces y by x."""
        with torch.no_grad():
            layers = [replace(each, y=each.x) if own else each for each in draws]
            return torch.stack([self.difference(each).abs().max() for each in layers])

    def says(self, own: bool) -> str:
        """What it says of either."""
        return self.own if own else self.other


LAWS = (
    Law("X shuffled", ALONG, ALONG, lambda d: d.attend(d.shuffled(d.x)) - d.shuffled(d.attend(d.x))),
    Law("keys and values shuffled together", STAYS, STAYS, lambda d: d.layer(d.x, d.shuffled(d.y)) - d.attend(d.x)),
    Law("values shuffled, keys not", MOVES, MOVES, lambda d: d.layer(d.x, d.y, d.shuffled(d.y)) - d.attend(d.x)),
    Law("keys padded, padding masked", STAYS, STAYS, _padded),
    Law("every key there twice", STAYS, STAYS, lambda d: d.layer(d.x, torch.cat([d.y, d.y], 1)) - d.attend(d.x)),
    Law("another token of X changed", MOVES, STAYS, _query_changed),
    Law("a key and its value changed", MOVES, MOVES, _key_changed),
)


def holds(law: Law, draws: list[RandomLayer], own: bool) -> bool:
    """Whether every draw does what the law says."""
    apart = law.apart(draws, own)
    return bool((apart > MOVED).all() if law.says(own) == MOVES else (apart < ROUNDING).all())


@dataclass(frozen=True)
class SelfCrossRun:
    """One trained model: its maps of unseen sentences, and words right by what was changed."""

    maps: dict[str, list[Tensor]]
    cat: dict[str, Tensor]
    moved: Tensor
    right: dict[str, float]


def measured(setting: Setting, seed: int, tested: int) -> SelfCrossRun:
    """What a model makes of sentences it has not seen."""
    model = train(training_task(setting, SCALED, seed)).model
    unseen = grammar.sentences(tested, seed, unseen=True)
    cat = {name: maps[0] for name, maps in attention_maps(model, [grammar.cat()]).items()}
    right = words_right(model, unseen, torch.Generator().manual_seed(seed))
    return SelfCrossRun(attention_maps(model, unseen), cat, shuffled_map(model, grammar.cat(), SHUFFLED), right)


def word_order(source: Tensor, generator: torch.Generator) -> Tensor:
    """A random order of each sentence's words; padding stays behind: (sentence, place)."""
    drawn = torch.rand(source.shape, generator=generator)
    return drawn.masked_fill(source == PAD, 2.0).argsort(dim=1, stable=True)


@torch.no_grad()
def words_right(model: torch_nn.Module, pairs: list[Pair], generator: torch.Generator) -> dict[str, float]:
    """By change: the share of words (and ends) that are predicted right, given the right words before."""
    assert isinstance(model, nn.Transformer)
    source, target = sources(pairs), targets(pairs)
    before, correct = target[:, :-1], target[:, 1:]
    lengths = (source != PAD).sum(1)
    mask = Lengths(lengths)
    memory = model.encode(source, mask=mask)
    logits = {INTACT: model.decode(before, memory, memory_mask=mask)}
    for place in ATTENTIONS:
        for name, change in CHANGES.items():
            with intervene(model, change, layers=place.path):
                logits[f"{place.name}: {name}"] = model(source, before, mask=mask)
    order = word_order(source, generator)
    shuffled = memory.gather(1, order.unsqueeze(-1).expand_as(memory))
    logits[MEMORY] = model.decode(before, shuffled, memory_mask=mask)
    logits[WORDS] = model(source.gather(1, order), before, mask=mask)
    logits[OTHER] = model.decode(before, memory.roll(1, 0), memory_mask=Lengths(lengths.roll(1)))
    words = correct != PAD
    return {name: float((each.argmax(-1) == correct)[words].double().mean()) for name, each in logits.items()}


@torch.no_grad()
def shuffled_map(model: torch_nn.Module, pair: Pair, order: list[int]) -> Tensor:
    """The cross map of one sentence when the encoder's outputs come in another order."""
    assert isinstance(model, nn.Transformer)
    memory = model.encode(sources([pair]))[:, order]
    with capture(model) as captured:
        model.decode(targets([pair])[:, :-1], memory)
    return captured[CROSS.path, 0].dense()[0, : len(pair.french)]


def keys_in_use(tables: list[Tensor]) -> float:
    """The mean over all rows of e^H."""
    rows = [torch.special.entr(table.double()).sum(1).exp() for table in tables]
    return float(torch.cat(rows).mean())


def same_place(tables: list[Tensor]) -> float:
    """The mean weight of row t on column t, over rows that have one."""
    return float(torch.cat([table.diagonal() for table in tables]).double().mean())


def square(tables: list[Tensor]) -> float:
    """The share of maps with as many rows as columns."""
    return sum(table.shape[0] == table.shape[1] for table in tables) / len(tables)


def trained_tables(runs: list[SelfCrossRun]) -> tuple[Table, Table]:
    """The three attentions of the trained model, and words right when one of them is changed."""
    rows: list[tuple[Cell, ...]] = []
    for place in ATTENTIONS:
        tables = [each.maps[place.name] for each in runs]
        measures = (
            share([square(each) for each in tables]),
            positive([keys_in_use(each) for each in tables]),
            share([same_place(each) for each in tables]),
        )
        rows.append((place.name, place.queries, place.keys, _shape(runs[0].cat[place.name]), *measures))
    columns = ("attention", "Q from", "K, V from", "cat map", "square maps", "keys in use", "weight on its place")
    title = f"Trained here, unseen sentences; mean and 95% interval over {len(runs)} trainings"
    worth = [(name, share([each.right[name] for each in runs])) for name in runs[0].right]
    changed = "Each French word, given the right ones before it"
    return Table(columns, rows, title), Table(("what is changed", "words right"), worth, changed)


def law_table(draws: list[RandomLayer]) -> Table:
    """What holds for any weights."""
    rows = [(law.done, *(f"{law.says(own)}: {_size(law.apart(draws, own))}" for own in (True, False))) for law in LAWS]
    title = (
        f"What the output does, and by how much at most it differs from that (changes: at least), in {len(draws)} "
        f"random layers; X has {QUERIES} tokens, Y {KEYS}, and in self-attention Y is X"
    )
    return Table(("done", "self", "cross"), rows, title)


def _shape(table: Tensor) -> str:
    return " × ".join(map(str, table.shape))


def _size(apart: Tensor) -> str:
    """The largest difference if all are rounding, else the smallest."""
    largest = float(apart.max())
    if largest == 0:
        return "0"
    return f"{largest:.0e}" if largest < ROUNDING else f"{float(apart.min()):.2f}"


def map_picture(run: SelfCrossRun) -> Picture:
    """The three maps of the seed's sentence."""
    english, french = grammar.labels(grammar.cat())
    # the decoder's row for a word stands on the word before it
    labels = {ENCODER: (english, english), DECODER: (french, ["<start>", *french[:-1]]), CROSS: (french, english)}
    grids = []
    for place, (rows, columns) in labels.items():
        values: list[list[float | None]] = run.cat[place.name].tolist()
        if place is DECODER:  # causal
            values = [line[: row + 1] + [None] * (len(line) - row - 1) for row, line in enumerate(values)]
        title = f"{place.name}, {len(rows)} × {len(columns)}"
        grids.append(Grid(values, rows, columns, title, limits=(0.0, 1.0)))
    return Panel(grids, "Trained: who looks at whom in The cat sits on the mat")


def shuffled_picture(run: SelfCrossRun) -> Picture:
    """Cross-attention over the encoder's outputs in another order."""
    columns, rows = grammar.labels(grammar.cat())
    grids = (
        Grid(run.cat[CROSS.name].tolist(), rows, columns, "in order", limits=(0.0, 1.0)),
        Grid(run.moved.tolist(), rows, [columns[place] for place in SHUFFLED], "shuffled", limits=(0.0, 1.0)),
    )
    return Panel(grids, "Encoder outputs in another order: columns move, nothing else")


def worth_picture(runs: list[SelfCrossRun]) -> Picture:
    """Words right with each attention changed."""
    labels = [INTACT, *(place.name for place in ATTENTIONS)]
    series = {}
    for name in CHANGES:
        changed = [INTACT, *(f"{place.name}: {name}" for place in ATTENTIONS)]
        series[name] = [share([each.right[which] for each in runs]).mean for which in changed]
    return Bars(labels, series, "words right", "What each attention is worth")


def _lost(runs: list[SelfCrossRun], name: str) -> Estimate:
    """Words that a change costs, of those right."""
    return number([each.right[INTACT] - each.right[name] for each in runs])


def claims(runs: list[SelfCrossRun], draws: list[RandomLayer]) -> tuple[Claim, ...]:
    """The table of the seed, and its examples."""
    independent = next(law for law in LAWS if law.done == "another token of X changed")
    own, other = quoted(RESULTS, SELF_ROW), quoted(RESULTS, CROSS_ROW)
    translation = quoted(RESULTS, "Machine translation: Decoder attends to encoder outputs")
    change = "output that changes when another token of X does, random layers"
    lost = "share of the words lost"
    rows, columns = runs[0].cat[CROSS.name].shape
    shape = f"the map of the seed's sentence is {rows} × {columns}"
    encoder, decoder = (_lost(runs, f"{place.name}: {REMOVED}") for place in (ENCODER, CROSS))
    return (
        Claim(own, f"least {change}, self", float(independent.apart(draws, own=True).min()), above(ROUNDING)),
        Claim(own, f"{lost} without the encoder's self-attention", encoder, above(0)),
        Claim(
            other, f"largest {change}, cross", float(independent.apart(draws, own=False).max()), below(ROUNDING), shape
        ),
        Claim(other, f"{lost} with another sentence's Y", _lost(runs, OTHER), above(0)),
        Claim(translation, f"{lost} without cross-attention", decoder, above(0)),
        Claim(translation, f"{lost} with equal weights", _lost(runs, f"{CROSS.name}: {UNIFORM}"), above(0)),
    )


def takeaway(runs: list[SelfCrossRun], draws: list[RandomLayer]) -> Takeaway:
    """What cross-attention is."""
    independent = next(law for law in LAWS if law.done == "another token of X changed")
    change = float(independent.apart(draws, own=False).max())
    lost = _lost(runs, f"{CROSS.name}: {REMOVED}")
    return Takeaway(
        "In cross-attention queries do not see each other, only the other sequence; without it a translation is lost.",
        "Here queries of cross-attention see each other, or a translation does without it.",
        (
            Evidence("largest output that changes when another token of X does, cross", change, below(ROUNDING)),
            Evidence("share of the words lost without cross-attention", lost, above(0.5)),
        ),
    )


def finding(runs: list[SelfCrossRun], draws: list[RandomLayer]) -> str:
    """One sentence, from the numbers."""
    right = {name: share([each.right[name] for each in runs]).mean for name in runs[0].right}
    without = ", ".join(f"{right[f'{place.name}: {REMOVED}']:.0%} without {place.name}" for place in ATTENTIONS)
    valid = sum(holds(law, draws, own) for law in LAWS for own in (True, False))
    rows, columns = runs[0].cat[CROSS.name].shape
    return (
        f"Cross-attention is the same operation over another sequence: its map is n × m ({rows} × {columns} for the "
        f"seed's sentence), costs n · m pairs, and its queries do not see each other ({valid} of {2 * len(LAWS)} laws "
        f"hold in all {len(draws)} random layers); the trained translation model gets {right[INTACT]:.0%} of "
        f"the words right, {without}; with the encoder's outputs in another order it gets {right[MEMORY]:.0%}, "
        f"with the English words themselves in another order {right[WORDS]:.0%}."
    )
