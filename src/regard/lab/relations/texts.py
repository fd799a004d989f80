"""Texts of items: each has a type and holds a payload, and each wants the payload of the item it is related to."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

NOWHERE = -100  # what `cross_entropy` leaves out


@dataclass(frozen=True, eq=False)
class Texts:
    """Types and payloads, (row, place) each: every type comes equally often, in random order."""

    types: Tensor
    payloads: Tensor

    @property
    def inputs(self) -> tuple[Tensor, Tensor]:
        """What a model is called with."""
        return self.types, self.payloads


def drawn(rows: int, types: int, copies: int, payloads: int, generator: torch.Generator) -> Texts:
    """Texts of `types` · `copies` items with payloads below `payloads`."""
    length = types * copies
    order = torch.rand(rows, length, generator=generator).argsort(1)
    return Texts(order % types, torch.randint(payloads, (rows, length), generator=generator))


def _previous(texts: Texts) -> Tensor:
    return torch.arange(-1, texts.types.shape[1] - 1).expand_as(texts.types)


def _first(texts: Texts) -> Tensor:
    places = torch.zeros_like(texts.types)
    places[:, 0] = -1
    return places


def _holding(wanted: Tensor, types: Tensor) -> Tensor:
    """The place of another item of the wanted type, −1 where there is not exactly one."""
    same = wanted.unsqueeze(-1) == types.unsqueeze(-2)
    same &= ~torch.eye(types.shape[1], dtype=torch.bool)
    return torch.where(same.sum(-1) == 1, same.int().argmax(-1), -1)


def _twin(texts: Texts) -> Tensor:
    return _holding(texts.types, texts.types)


def _next(texts: Texts) -> Tensor:
    return _holding((texts.types + 1) % (int(texts.types.max()) + 1), texts.types)


def _partner(texts: Texts) -> Tensor:
    return _holding(texts.types ^ 1, texts.types)


#: where an item finds what it wants, (row, place), −1 where nothing is wanted
RELATIONS: dict[str, Callable[[Texts], Tensor]] = {
    "previous": _previous,
    "first": _first,
    "twin": _twin,
    "next": _next,
    "partner": _partner,
}


def places(texts: Texts, relation: str) -> Tensor:
    """Where each item finds what it wants, (row, place); −1 where nothing is wanted."""
    return RELATIONS[relation](texts)


def wanted(texts: Texts, question: str, payloads: int) -> Tensor:
    """The right answers, (row, place): the payload of a relation, or of `this+that` the sum modulo `payloads`."""
    found = [places(texts, relation) for relation in question.split("+")]
    total = sum(texts.payloads.gather(1, each.clamp(min=0)) for each in found)
    known = torch.stack(found).amin(0) >= 0
    return torch.where(known, torch.as_tensor(total) % payloads, NOWHERE)
