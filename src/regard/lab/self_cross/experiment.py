"""self-cross: what changes when keys and values come from another sequence.

The laws are tried on random layers, whose weights do not matter. The maps, and what each attention is worth, come from
the models that `regard lab translation` trains: they have self-attention over English and over French, and
cross-attention from French to English.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard import nn
from regard.cached import cached_property
from regard.inspection.records import Bars, Cell, Estimate, Grid, Panel, Picture, Table
from regard.lab.report import RESULTS, Claim, Compared, Report, above_zero, confirmed
from regard.lab.self_cross import measure
from regard.lab.self_cross.measure import KEYS, LAWS, QUERIES, ROUNDING, RandomLayer, draw, holds
from regard.lab.setting import Setting
from regard.lab.statistics import number, share
from regard.lab.training import train
from regard.lab.translation import grammar
from regard.lab.translation.experiment import training_task
from regard.lab.translation.task import SCALED
from regard.nn.attention import Summary

START = "<start>"
SHUFFLED = [4, 2, 0, 5, 1, 3]  # the order of English words in the picture


@dataclass(frozen=True)
class LayerExample:
    """One attention layer of a known model: `queries` and `keys` are its lengths, `width` that of X, `other` of Y."""

    name: str
    asks: str
    looked_at: str
    queries: int
    keys: int
    width: int
    heads: int
    shown: str
    other: int | None = None

    @property
    def own(self) -> bool:
        """Whether it is self-attention."""
        return self.asks == self.looked_at

    @cached_property
    def summary(self) -> Summary:
        """Parameters and operations of the layer."""
        layer = nn.MultiHeadAttention(self.width, self.heads, d_key=self.other, d_value=self.other)
        return layer.summary(self.queries, self.keys)


# BERT-base: Devlin et al., 2019; ViT-B/16 at 224 × 224: Dosovitskiy et al., 2021; the base model of Vaswani et al.,
# 2017, on sentences of 25 words; 14 × 14 places of an image: Xu et al., 2015, as a layer of that base model; Stable
# Diffusion 1, the finest of its layers, 64 × 64 latents and 77 tokens: Rombach et al., 2022
EXAMPLES = (
    LayerExample("BERT", "words", "words", 512, 512, 768, 12, "regard lab context"),
    LayerExample("ViT", "patches", "patches", 197, 197, 768, 12, "regard lab vision"),
    LayerExample("machine translation", "target words", "source words", 25, 25, 512, 8, "regard lab translation"),
    LayerExample("image captioning", "words", "places of an image", 20, 196, 512, 8, "regard lab vision"),
    LayerExample("Stable Diffusion", "places of an image", "words", 4096, 77, 320, 8, "regard lab vision", 768),
)


def example_table() -> Table:
    """Sources of queries, keys and values in each example."""
    rows = [(each.name, "self" if each.own else "cross", each.asks, each.looked_at, each.shown) for each in EXAMPLES]
    return Table(("example", "kind", "Q from", "K, V from", "small, by"), rows, "The seed's examples")


def cost_table() -> Table:
    """What a layer of each costs, and the same if X looked at itself."""
    rows: list[tuple[Cell, ...]] = []
    for each in EXAMPLES:
        summary, pairs = each.summary, each.queries * each.keys
        between = summary.flops["scores"] + summary.flops["values"]
        size, work = f"{each.queries} × {each.keys}", summary.total_flops
        more = pairs / each.queries**2
        rows.append((each.name, size, pairs, more, summary.total_parameters, work / 1e9, between / work))
    columns = ("example", "n × m", "pairs", "÷ n²", "parameters", "GFLOPs", "on pairs")
    return Table(columns, rows, "One layer of each at the sizes of the literature, computed")


@dataclass(frozen=True)
class SelfCrossRun:
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
    seeds = setting.seeds(repetitions)
    runs = [measured(setting, seed, tested) for seed in seeds]
    draws = [draw(generator) for _ in range(setting.choose(full=200, quick=50))]
    return Report(
        "self-cross",
        "What changes when keys and values come from another sequence?",
        (map_table(runs), worth_table(runs), law_table(draws), example_table(), cost_table()),
        (map_picture(runs[0]), worth_picture(runs), shuffled_picture(runs[0])),
        finding(runs, draws),
        (Compared(f"{RESULTS}, Self-Attention vs Cross-Attention", claims(runs, draws)),),
        setting.record(repetitions, test_sentences=tested, random_layers=len(draws)),
    )


def measured(setting: Setting, seed: int, tested: int) -> SelfCrossRun:
    """What a model makes of sentences it has not seen."""
    model = train(training_task(setting, SCALED, seed)).model
    unseen = grammar.sentences(tested, seed, unseen=True)
    cat = {name: tables[0] for name, tables in measure.maps(model, [grammar.cat()]).items()}
    right = measure.words_right(model, unseen, torch.Generator().manual_seed(seed))
    return SelfCrossRun(measure.maps(model, unseen), cat, measure.shuffled_map(model, grammar.cat(), SHUFFLED), right)


def map_table(runs: list[SelfCrossRun]) -> Table:
    """The three attentions of the trained model."""
    rows: list[tuple[Cell, ...]] = []
    for place in measure.PLACES:
        tables = [each.maps[place.name] for each in runs]
        size, square = _size_of(runs[0].cat[place.name]), share([measure.square(each) for each in tables])
        used = number([measure.keys_in_use(each) for each in tables])
        own = share([measure.same_place(each) for each in tables])
        rows.append((place.name, place.asks, place.looked_at, size, square, used, own))
    columns = ("attention", "Q from", "K, V from", "cat map", "square maps", "keys in use", "weight on its place")
    return Table(columns, rows, f"Trained here, unseen sentences; mean and 95% interval over {len(runs)} trainings")


def worth_table(runs: list[SelfCrossRun]) -> Table:
    """Words right when one attention is changed."""
    rows = [(name, share([each.right[name] for each in runs])) for name in runs[0].right]
    return Table(("what is changed", "words right"), rows, "Each French word, given the right ones before it")


def law_table(draws: list[RandomLayer]) -> Table:
    """What holds for any weights."""
    rows = [(law.done, *(f"{law.says(own)}: {_size(law.apart(draws, own))}" for own in (True, False))) for law in LAWS]
    title = (
        f"What the output does, and by how much at most it differs from that (changes: at least), in {len(draws)} "
        f"random layers; X has {QUERIES} tokens, Y {KEYS}, and in self-attention Y is X"
    )
    return Table(("done", "self", "cross"), rows, title)


def _size_of(table: Tensor) -> str:
    return " × ".join(map(str, table.shape))


def _size(apart: Tensor) -> str:
    """The largest difference if all are rounding, else the smallest."""
    largest = float(apart.max())
    if largest == 0:
        return "0"
    return f"{largest:.0e}" if largest < ROUNDING else f"{float(apart.min()):.2f}"


def _words() -> dict[str, tuple[list[str], list[str]]]:
    """Row and column labels of the cat maps. The decoder's row for a word stands on the word before it."""
    english, french = grammar.labels(grammar.cat())
    return {
        measure.ENCODER.name: (english, english),
        measure.DECODER.name: (french, [START, *french[:-1]]),
        measure.CROSS.name: (french, english),
    }


def map_picture(run: SelfCrossRun) -> Picture:
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


def shuffled_picture(run: SelfCrossRun) -> Picture:
    """Cross-attention over the encoder's outputs in another order."""
    rows, columns = _words()[measure.CROSS.name]
    grids = (
        Grid(run.cat[measure.CROSS.name].tolist(), rows, columns, "in order", limits=(0.0, 1.0)),
        Grid(run.moved.tolist(), rows, [columns[place] for place in SHUFFLED], "shuffled", limits=(0.0, 1.0)),
    )
    return Panel(grids, "Encoder outputs in another order: columns move, nothing else")


def worth_picture(runs: list[SelfCrossRun]) -> Picture:
    """Words right with each attention changed."""
    labels = [measure.INTACT, *(place.name for place in measure.PLACES)]
    series = {}
    for name, _ in measure.CHANGES:
        changed = [measure.INTACT, *(f"{place.name}: {name}" for place in measure.PLACES)]
        series[name] = [share([each.right[which] for each in runs]).mean for which in changed]
    return Bars(labels, series, "words right", "What each attention is worth")


def _lost(runs: list[SelfCrossRun], name: str) -> Estimate:
    """Words that a change costs, of those right."""
    return number([each.right[measure.INTACT] - each.right[name] for each in runs])


def claims(runs: list[SelfCrossRun], draws: list[RandomLayer]) -> tuple[Claim, ...]:
    """The table of the seed, and its examples."""
    independent = next(law for law in LAWS if law.done == "another token of X changed")
    equal, removed = (name for name, _ in measure.CHANGES)
    encoder, cross = (runs[0].cat[place.name] for place in (measure.ENCODER, measure.CROSS))
    within, between = (_lost(runs, f"{place.name}: {removed}") for place in (measure.ENCODER, measure.CROSS))
    flat = _lost(runs, f"{measure.CROSS.name}: {equal}")
    other = _lost(runs, measure.OTHER)
    own_moves, other_stays = (holds(independent, draws, own) for own in (True, False))
    lengths = len(grammar.cat().french), len(grammar.cat().english)
    within_x = "another token of X changes the output" if own_moves else "no change"
    between_x = "tokens of X do not meet" if other_stays else "tokens of X meet"
    return (
        Claim("self: Q, K and V from X", "n × n", _size_of(encoder), confirmed(encoder.shape[0] == encoder.shape[1])),
        Claim("cross: K and V from Y", "n × m", _size_of(cross), confirmed(tuple(cross.shape) == lengths)),
        Claim("self: within-sequence patterns", "tokens of X meet", within_x, confirmed(own_moves)),
        Claim("cross: between-sequence patterns", "X meets Y", between_x, confirmed(other_stays)),
        Claim("encoder looks at itself", "used", within, f"{above_zero(within)}: words lost without it"),
        Claim("decoder looks at the encoder", "used", between, f"{above_zero(between)}: words lost without it"),
        Claim("what is looked at matters", "yes", flat, f"{above_zero(flat)}: words lost with equal weights"),
        Claim("Y conditions what X becomes", "yes", other, f"{above_zero(other)}: words lost with another Y"),
    )


def finding(runs: list[SelfCrossRun], draws: list[RandomLayer]) -> str:
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
