"""What a trained translation model does with its three attentions, and without them."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch import nn as torch_nn

from regard import nn
from regard.inspection.capture import capture
from regard.inspection.interventions import Ablate, Change, Uniform, intervene
from regard.lab.translation.grammar import Pair
from regard.lab.translation.vocabulary import PAD, sources, targets
from regard.spec.masks import Lengths


@dataclass(frozen=True)
class Place:
    """An attention of the model: its path, and which sequence asks and which is looked at."""

    name: str
    path: str
    asks: str
    looked_at: str

    @property
    def own(self) -> bool:
        """Whether a sequence looks at itself."""
        return self.asks == self.looked_at


ENCODER = Place("encoder self", "encoder.blocks.0.attention", "English", "English")
DECODER = Place("decoder self", "decoder.blocks.0.attention", "French", "French")
CROSS = Place("cross", "decoder.blocks.0.cross", "French", "English")
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
class Asked:
    """Sentences as numbers, and their right continuation."""

    source: Tensor
    target: Tensor

    @classmethod
    def of(cls, pairs: list[Pair]) -> "Asked":
        """Of sentence pairs."""
        return cls(sources(pairs), targets(pairs))

    @property
    def mask(self) -> Lengths:
        """What hides the padding of the English sentences."""
        return Lengths(self.lengths)

    @property
    def lengths(self) -> Tensor:
        """Of the English sentences."""
        return (self.source != PAD).sum(1)

    def right(self, logits: Tensor) -> float:
        """The share of words (and ends) that are likeliest where they should be, given the right words before."""
        wanted = self.target[:, 1:]
        return float((logits.argmax(-1) == wanted)[wanted != PAD].double().mean())

    def order(self, generator: torch.Generator) -> Tensor:
        """A random order of each sentence's words; padding stays behind: (sentence, place)."""
        drawn = torch.rand(self.source.shape, generator=generator)
        return drawn.masked_fill(self.source == PAD, 2.0).argsort(dim=1, stable=True)


CHANGES: tuple[tuple[str, Change], ...] = (("equal weights", Uniform()), ("output removed", Ablate()))
INTACT = "intact"
MEMORY, WORDS, OTHER = "encoder outputs shuffled", "English words shuffled", "another sentence's outputs"


def words_right(model: torch_nn.Module, pairs: list[Pair], generator: torch.Generator) -> dict[str, float]:
    """Words right, given the right words before: by what was changed."""
    assert isinstance(model, nn.Transformer)
    asked = Asked.of(pairs)
    target = asked.target[:, :-1]
    found = {}
    with torch.no_grad():
        memory = model.encode(asked.source, mask=asked.mask)
        found[INTACT] = asked.right(model.decode(target, memory, memory_mask=asked.mask))
        for place in PLACES:
            for name, change in CHANGES:
                with intervene(model, change, layers=place.path):
                    found[f"{place.name}: {name}"] = asked.right(model(asked.source, target, mask=asked.mask))
        order = asked.order(generator)
        shuffled = memory.gather(1, order.unsqueeze(-1).expand_as(memory))
        found[MEMORY] = asked.right(model.decode(target, shuffled, memory_mask=asked.mask))
        found[WORDS] = asked.right(model(asked.source.gather(1, order), target, mask=asked.mask))
        lengths = Lengths(asked.lengths.roll(1))
        found[OTHER] = asked.right(model.decode(target, memory.roll(1, 0), memory_mask=lengths))
    return found


def shuffled_map(model: torch_nn.Module, pair: Pair, order: list[int]) -> Tensor:
    """The cross map of one sentence when the encoder's outputs come in another order."""
    assert isinstance(model, nn.Transformer)
    asked = Asked.of([pair])
    with torch.no_grad():
        memory = model.encode(asked.source)[:, order]
        with capture(model) as seen:
            model.decode(asked.target[:, :-1], memory)
        return seen[CROSS.path, 0].dense()[0, : len(pair.french)]
