"""Whether the vectors of one word are near each other where its sense is the same, word by word."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from regard.inspection.interventions import Ablate, Change
from regard.lab.context.reading import Heads, Reading
from regard.lab.context.sentences import words


@dataclass(frozen=True)
class Senses:
    """One number for each word: the share of its sentences whose nearest neighbor has the same sense; by how much
    sentences of one sense are closer (cosine) than those of different senses; and how close they are on average."""

    accuracy: Tensor
    separation: Tensor
    closeness: Tensor


def closeness(vectors: Tensor) -> Tensor:
    """Cosines (sentence, sentence), to twelve digits: vectors that are the same are then equally near."""
    unit = normalize(vectors.double(), dim=-1)
    return (unit @ unit.T).round(decimals=12)


def groups(reading: Reading) -> list[tuple[str, Tensor, Tensor]]:
    """Each word, its sentences, and which pairs of them share their sense."""
    found = []
    for word in words(reading.sentences):
        rows = [row for row, each in enumerate(reading.sentences) if each.word == word]
        sense = [reading.sentences[row].sense for row in rows]
        same = torch.tensor([[one == other for other in sense] for one in sense])
        found.append((word, torch.tensor(rows), same))
    return found


def senses(reading: Reading, vectors: Tensor) -> Senses:
    """Of vectors (sentence, width). Neighbors that are equally near count by their share, as chance would choose."""
    columns = []
    for _, rows, same in groups(reading):
        near = closeness(vectors[rows])
        own = torch.eye(len(rows), dtype=torch.bool)
        nearest = near.masked_fill(own, -2.0)
        tied = nearest == nearest.amax(1, keepdim=True)
        right = ((tied & same).sum(1) / tied.sum(1)).double().mean()
        columns.append((right, near[same & ~own].mean() - near[~same].mean(), near[~own].mean()))
    return Senses(*(torch.stack(column) for column in zip(*columns, strict=True)))


def chance(reading: Reading) -> float:
    """How often a neighbor drawn at random has the same sense."""
    shares = [(same.sum() - len(rows)) / (len(rows) * (len(rows) - 1)) for _, rows, same in groups(reading)]
    return float(torch.stack(shares).double().mean())


def cue_weight(reading: Reading) -> Tensor:
    """(layer, head): the share of the word's attention that goes to the words which tell its sense."""
    return (reading.weights * reading.cues[None, :, None]).sum(-1).mean(1).double()


def uniform(reading: Reading) -> float:
    """That share if attention were the same everywhere."""
    return float((reading.cues.sum(1) / reading.lengths).double().mean())


def readers(reading: Reading, count: int) -> Heads:
    """The heads that give most weight to the cues, by layer."""
    weight = cue_weight(reading)
    found: Heads = {}
    for place in sorted(weight.flatten().topk(count).indices.tolist()):
        found.setdefault(place // weight.shape[1], []).append(place % weight.shape[1])
    return found


def like(heads: Heads, count: int, generator: torch.Generator) -> Heads:
    """As many heads of the same layers, drawn at random from those that are not among them."""
    drawn = {}
    for layer, chosen in heads.items():
        free = [head for head in range(count) if head not in chosen]
        order = torch.randperm(len(free), generator=generator).tolist()
        drawn[layer] = [free[place] for place in order[: len(chosen)]]
    return drawn


def elsewhere(reading: Reading, generator: torch.Generator) -> Tensor:
    """(sentence, token): as many other words as a sentence has cues, drawn at random."""
    order = torch.rand(reading.others.shape, generator=generator).masked_fill(~reading.others, 2.0)
    rank = order.argsort(1).argsort(1)
    return (rank < reading.cues.sum(1, keepdim=True)) & reading.others


def mean_of(found: Sequence[Senses]) -> Senses:
    """The mean of several, word by word."""
    parts = ("accuracy", "separation", "closeness")
    return Senses(*(torch.stack([getattr(each, part) for each in found]).mean(0) for part in parts))


def after(reading: Reading, change: Change, heads: Heads | None = None) -> Senses:
    """The senses after the last layer when heads are changed."""
    return senses(reading, reading.changed(change, heads))


def drops(reading: Reading, layer: int, head: int, whole: Tensor) -> float:
    """The share of the separation, mean over words, that is lost without one head."""
    left = after(reading, Ablate(), {layer: [head]}).separation
    return 1 - float(left.mean() / whole.mean())
