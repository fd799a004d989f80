"""Laws of self- and cross-attention, tried on random layers: what moves, what stays, and what has no meaning."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard import nn
from regard.lab.draws import normal
from regard.spec.masks import Lengths

QUERIES, KEYS, WIDTH, HEADS = 7, 6, 32, 4


@dataclass(frozen=True)
class Draw:
    """A layer, a sequence x that asks and a sequence y that is looked at, and an order to shuffle either by."""

    layer: nn.MultiHeadAttention
    x: Tensor
    y: Tensor
    order: Tensor

    def of(self, own: bool) -> "Draw":
        """The same with y = x, if attention is to look at its own sequence."""
        return Draw(self.layer, self.x, self.x, self.order) if own else self

    def shuffled(self, rows: Tensor) -> Tensor:
        """The rows in another order."""
        return rows[:, self.order[self.order < rows.shape[1]]]


def draw(generator: torch.Generator) -> Draw:
    """Random weights and sequences in float64."""
    layer = nn.MultiHeadAttention(WIDTH, HEADS).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(normal(generator, *parameter.shape) / WIDTH**0.5)
    return Draw(layer, normal(generator, 1, QUERIES, WIDTH), normal(generator, 1, KEYS, WIDTH), _order(generator))


def _order(generator: torch.Generator) -> Tensor:
    """A random order that moves something even where it is cut to the shorter sequence."""
    while True:
        order = torch.randperm(max(QUERIES, KEYS), generator=generator)
        short = order[order < min(QUERIES, KEYS)]
        if not torch.equal(short, short.sort().values):
            return order


def _apart(first: Tensor, second: Tensor) -> float:
    return float((first - second).abs().max())


def _queries_shuffled(given: Draw, own: bool) -> float:
    """Shuffle x (and with it y, if they are the same)."""
    d = given.of(own)
    x = d.shuffled(d.x)
    return _apart(d.layer(x, x if own else d.y), d.shuffled(d.layer(d.x, d.y)))


def _keys_shuffled(given: Draw, own: bool) -> float:
    d = given.of(own)
    return _apart(d.layer(d.x, d.shuffled(d.y)), d.layer(d.x, d.y))


def _values_shuffled(given: Draw, own: bool) -> float:
    d = given.of(own)
    return _apart(d.layer(d.x, d.y, d.shuffled(d.y)), d.layer(d.x, d.y))


def _padded(given: Draw, own: bool) -> float:
    """Add rows of noise to y and hide them."""
    d = given.of(own)
    longer = torch.cat([d.y, 100 * d.shuffled(d.y)], 1)
    return _apart(d.layer(d.x, longer, mask=Lengths(torch.tensor([d.y.shape[1]]))), d.layer(d.x, d.y))


def _twice(given: Draw, own: bool) -> float:
    d = given.of(own)
    return _apart(d.layer(d.x, torch.cat([d.y, d.y], 1)), d.layer(d.x, d.y))


def _other_changed(given: Draw, own: bool) -> float:
    """Change the last token of x, and look at the first output."""
    d = given.of(own)
    x = d.x.clone()
    x[:, -1] = d.y[:, 0] + 1
    return _apart(d.layer(x, x if own else d.y)[:, 0], d.layer(d.x, d.y)[:, 0])


def _looked_at_changed(given: Draw, own: bool) -> float:
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
    measure: Callable[[Draw, bool], float]

    def apart(self, draws: list[Draw], own: bool) -> Tensor:
        """The difference for each draw."""
        with torch.no_grad():
            return torch.tensor([self.measure(each, own) for each in draws], dtype=torch.float64)

    def says(self, own: bool) -> str:
        """What it says of either."""
        return self.own if own else self.other


STAYS, CHANGES = "stays", "changes"
ALONG = "is shuffled along"

LAWS = (
    Law("X shuffled", ALONG, ALONG, _queries_shuffled),
    Law("keys and values shuffled together", STAYS, STAYS, _keys_shuffled),
    Law("values shuffled, keys not", CHANGES, CHANGES, _values_shuffled),
    Law("keys padded, padding masked", STAYS, STAYS, _padded),
    Law("every key there twice", STAYS, STAYS, _twice),
    Law("another token of X changed", CHANGES, STAYS, _other_changed),
    Law("a key and its value changed", CHANGES, CHANGES, _looked_at_changed),
)
ROUNDING, MOVED = 1e-12, 1e-3  # differences below and above which an output stays, and changes


def holds(law: Law, draws: list[Draw], own: bool) -> bool:
    """Whether every draw does what the law says."""
    apart = law.apart(draws, own)
    return bool((apart > MOVED).all() if law.says(own) == CHANGES else (apart < ROUNDING).all())
