"""Laws of self- and cross-attention on random layers, and the three attentions of a trained translation model."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import nn as torch_nn

from regard import nn
from regard.inspection.capture import capture
from regard.inspection.interventions import Ablate, Change, Uniform, intervene
from regard.lab.maps import normal
from regard.lab.translation.grammar import PAD, Pair, sources, targets
from regard.spec.masks import Lengths

QUERIES, KEYS, WIDTH, HEADS = 7, 6, 32, 4
STAYS, MOVES = "stays", "changes"
ALONG = "is shuffled along"
ROUNDING, MOVED = 1e-12, 1e-3  # differences below and above which an output stays, and changes
CHANGES: tuple[tuple[str, Change], ...] = (("equal weights", Uniform()), ("output removed", Ablate()))
INTACT = "intact"
MEMORY, WORDS, OTHER = "encoder outputs shuffled", "English words shuffled", "another sentence's outputs"


@dataclass(frozen=True)
class RandomLayer:
    """A layer, a sequence x that asks and a sequence y that is looked at, and an order to shuffle either by."""

    layer: nn.MultiHeadAttention
    x: Tensor
    y: Tensor
    order: Tensor

    def of(self, own: bool) -> "RandomLayer":
        """The same with y = x, if attention is to look at its own sequence."""
        return RandomLayer(self.layer, self.x, self.x, self.order) if own else self

    def shuffled(self, rows: Tensor) -> Tensor:
        """The rows in another order."""
        return rows[:, self.order[self.order < rows.shape[1]]]


def draw(generator: torch.Generator) -> RandomLayer:
    """Random weights and sequences in float64."""
    layer = nn.MultiHeadAttention(WIDTH, HEADS).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(normal(generator, *parameter.shape) / WIDTH**0.5)
    return RandomLayer(
        layer, normal(generator, 1, QUERIES, WIDTH), normal(generator, 1, KEYS, WIDTH), _order(generator)
    )


def _order(generator: torch.Generator) -> Tensor:
    """A random order that moves something even where it is cut to the shorter sequence."""
    while True:
        order = torch.randperm(max(QUERIES, KEYS), generator=generator)
        short = order[order < min(QUERIES, KEYS)]
        if not torch.equal(short, short.sort().values):
            return order


def _apart(first: Tensor, second: Tensor) -> float:
    return float((first - second).abs().max())


def _queries_shuffled(given: RandomLayer, own: bool) -> float:
    """Shuffle x (and with it y, if they are the same)."""
    d = given.of(own)
    x = d.shuffled(d.x)
    return _apart(d.layer(x, x if own else d.y), d.shuffled(d.layer(d.x, d.y)))


def _keys_shuffled(given: RandomLayer, own: bool) -> float:
    d = given.of(own)
    return _apart(d.layer(d.x, d.shuffled(d.y)), d.layer(d.x, d.y))


def _values_shuffled(given: RandomLayer, own: bool) -> float:
    d = given.of(own)
    return _apart(d.layer(d.x, d.y, d.shuffled(d.y)), d.layer(d.x, d.y))


def _padded(given: RandomLayer, own: bool) -> float:
    """Add rows of noise to y and hide them."""
    d = given.of(own)
    longer = torch.cat([d.y, 100 * d.shuffled(d.y)], 1)
    return _apart(d.layer(d.x, longer, mask=Lengths(torch.tensor([d.y.shape[1]]))), d.layer(d.x, d.y))


def _twice(given: RandomLayer, own: bool) -> float:
    d = given.of(own)
    return _apart(d.layer(d.x, torch.cat([d.y, d.y], 1)), d.layer(d.x, d.y))


def _other_changed(given: RandomLayer, own: bool) -> float:
    """Change the last token of x, and look at the first output."""
    d = given.of(own)
    x = d.x.clone()
    x[:, -1] = d.y[:, 0] + 1
    return _apart(d.layer(x, x if own else d.y)[:, 0], d.layer(d.x, d.y)[:, 0])


def _looked_at_changed(given: RandomLayer, own: bool) -> float:
    """Change the last token of y alone, and look at the first output."""
    d = given.of(own)
    y = d.y.clone()
    y[:, -1] = d.x[:, 0] + 1
    return _apart(d.layer(d.x, y)[:, 0], d.layer(d.x, d.y)[:, 0])


@dataclass(frozen=True)
class Law:
    """What is done, what the output then does in self- and in cross-attention, and the largest difference from that."""

    done: str
    own: str
    other: str
    measure: Callable[[RandomLayer, bool], float]

    def apart(self, draws: list[RandomLayer], own: bool) -> Tensor:
        """The difference for each draw."""
        with torch.no_grad():
            return torch.tensor([self.measure(each, own) for each in draws], dtype=torch.float64)

    def says(self, own: bool) -> str:
        """What it says of either."""
        return self.own if own else self.other


LAWS = (
    Law("X shuffled", ALONG, ALONG, _queries_shuffled),
    Law("keys and values shuffled together", STAYS, STAYS, _keys_shuffled),
    Law("values shuffled, keys not", MOVES, MOVES, _values_shuffled),
    Law("keys padded, padding masked", STAYS, STAYS, _padded),
    Law("every key there twice", STAYS, STAYS, _twice),
    Law("another token of X changed", MOVES, STAYS, _other_changed),
    Law("a key and its value changed", MOVES, MOVES, _looked_at_changed),
)


def holds(law: Law, draws: list[RandomLayer], own: bool) -> bool:
    """Whether every draw does what the law says."""
    apart = law.apart(draws, own)
    return bool((apart > MOVED).all() if law.says(own) == MOVES else (apart < ROUNDING).all())


@dataclass(frozen=True)
class AttentionPlace:
    """An attention of the model: its path, and which sequence asks and which is looked at."""

    name: str
    path: str
    asks: str
    looked_at: str

    @property
    def own(self) -> bool:
        """Whether a sequence looks at itself."""
        return self.asks == self.looked_at


ENCODER = AttentionPlace("encoder self", "encoder.blocks.0.attention", "English", "English")


DECODER = AttentionPlace("decoder self", "decoder.blocks.0.attention", "French", "French")


CROSS = AttentionPlace("cross", "decoder.blocks.0.cross", "French", "English")


PLACES = (ENCODER, DECODER, CROSS)


def maps(model: torch_nn.Module, pairs: list[Pair]) -> dict[str, list[Tensor]]:
    """The weights of every attention while the right translation is chosen, one table per sentence, without padding.

    Row t of the decoder stands for the step that chooses French word t: its sequence is a start and the words before.
    """
    source, target = sources(pairs), targets(pairs)
    with torch.no_grad():
        seen = capture(model, source, target[:, :-1], mask=Lengths((source != PAD).sum(1)))
        tables = {place.name: seen[place.path, 0].dense() for place in PLACES}
    lengths = {"English": [len(pair.english) for pair in pairs], "French": [len(pair.french) for pair in pairs]}
    return {
        place.name: [
            table[:rows, :columns]
            for table, rows, columns in zip(
                tables[place.name], lengths[place.asks], lengths[place.looked_at], strict=True
            )
        ]
        for place in PLACES
    }


def keys_in_use(tables: list[Tensor]) -> float:
    """The mean over all rows of e^H."""
    rows = [torch.special.entr(table.double()).sum(1).exp() for table in tables]
    return float(torch.cat(rows).mean())


def same_place(tables: list[Tensor]) -> float:
    """The mean weight of row t on column t, over rows that have one."""
    return float(torch.cat([table.diagonal() for table in tables]).double().mean())


def pairs_of(tables: list[Tensor]) -> float:
    """The mean number of pairs of a map."""
    return sum(table.numel() for table in tables) / len(tables)


def square(tables: list[Tensor]) -> float:
    """The share of maps with as many rows as columns."""
    return sum(table.shape[0] == table.shape[1] for table in tables) / len(tables)


@dataclass(frozen=True)
class TranslationBatch:
    """Sentences as numbers, and their right continuation."""

    source: Tensor
    target: Tensor

    @classmethod
    def of(cls, pairs: list[Pair]) -> "TranslationBatch":
        """The batch of sentence pairs."""
        return cls(sources(pairs), targets(pairs))

    @property
    def mask(self) -> Lengths:
        """What hides the padding of the English sentences."""
        return Lengths(self.lengths)

    @property
    def lengths(self) -> Tensor:
        """Lengths of the English sentences."""
        return (self.source != PAD).sum(1)

    def right(self, logits: Tensor) -> float:
        """The share of words (and ends) that are likeliest where they should be, given the right words before."""
        wanted = self.target[:, 1:]
        return float((logits.argmax(-1) == wanted)[wanted != PAD].double().mean())

    def order(self, generator: torch.Generator) -> Tensor:
        """A random order of each sentence's words; padding stays behind: (sentence, place)."""
        drawn = torch.rand(self.source.shape, generator=generator)
        return drawn.masked_fill(self.source == PAD, 2.0).argsort(dim=1, stable=True)


def words_right(model: torch_nn.Module, pairs: list[Pair], generator: torch.Generator) -> dict[str, float]:
    """Words right, given the right words before: by what was changed."""
    assert isinstance(model, nn.Transformer)
    asked = TranslationBatch.of(pairs)
    target = asked.target[:, :-1]
    right = {}
    with torch.no_grad():
        memory = model.encode(asked.source, mask=asked.mask)
        right[INTACT] = asked.right(model.decode(target, memory, memory_mask=asked.mask))
        for place in PLACES:
            for name, change in CHANGES:
                with intervene(model, change, layers=place.path):
                    right[f"{place.name}: {name}"] = asked.right(model(asked.source, target, mask=asked.mask))
        order = asked.order(generator)
        shuffled = memory.gather(1, order.unsqueeze(-1).expand_as(memory))
        right[MEMORY] = asked.right(model.decode(target, shuffled, memory_mask=asked.mask))
        right[WORDS] = asked.right(model(asked.source.gather(1, order), target, mask=asked.mask))
        lengths = Lengths(asked.lengths.roll(1))
        right[OTHER] = asked.right(model.decode(target, memory.roll(1, 0), memory_mask=lengths))
    return right


def shuffled_map(model: torch_nn.Module, pair: Pair, order: list[int]) -> Tensor:
    """The cross map of one sentence when the encoder's outputs come in another order."""
    assert isinstance(model, nn.Transformer)
    asked = TranslationBatch.of([pair])
    with torch.no_grad():
        memory = model.encode(asked.source)[:, order]
        with capture(model) as seen:
            model.decode(asked.target[:, :-1], memory)
        return seen[CROSS.path, 0].dense()[0, : len(pair.french)]
