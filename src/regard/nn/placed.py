"""placed: what a module does with positions, where a process holds a part of the sequence."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.nn.positions import Start

if TYPE_CHECKING:
    from regard.engine.ring import Ring


def placed(
    module: Callable[[Tensor, Start], Tensor], x: Tensor, start: Start, engine: "str | Ring", dim: int = -2
) -> Tensor:
    """`module(x, start)`; with a Ring every stretch of the shard along `dim` from where it stands in the whole."""
    if isinstance(engine, str):
        return module(x, start)
    parts = [module(_rows(x, at, dim), start + first) for first, at in engine.placed(x.shape[dim])]
    return torch.cat(parts, -2) if parts else module(x, start)


def _rows(x: Tensor, at: slice, dim: int) -> Tensor:
    return x.narrow(dim, at.start, at.stop - at.start)
