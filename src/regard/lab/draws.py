"""Random attention: queries and keys with independent standard normal components, and what `attend` says of them."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from regard.engine.attend import attend

KEYS = 20  # the printed entropies fit attention over 20 keys
CHUNK = 100  # repetitions held at once


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Independent standard normal numbers in float64."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def chunks(repetitions: int) -> Iterator[int]:
    """Sizes that add up to the repetitions, none larger than what is held at once."""
    for first in range(0, repetitions, CHUNK):
        yield min(CHUNK, repetitions - first)


def looked_at(query: Tensor, key: Tensor, value: Tensor, *aux: str, **spec: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """`attend` with its statistics by name: (…, query, d_v), and one number per query for each of `aux`."""
    found = attend(query, key, value, aux=aux, **spec)
    assert isinstance(found, tuple)
    out, statistics = found
    return out, {name: getattr(statistics, name).detach() for name in aux}


def weights(query: Tensor, key: Tensor, **spec: Any) -> Tensor:
    """The weights themselves, (…, query, key): what attention returns when the values are the unit vectors."""
    unit = torch.eye(key.shape[-2], dtype=key.dtype)
    out = attend(query, key, unit.expand(*key.shape[:-2], -1, -1), **spec)
    assert isinstance(out, Tensor)
    return out
