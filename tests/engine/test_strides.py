"""How a tensor lies in memory never changes a result."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard import attend
from regard.engine.request import AUX
from regard.testing import error, small_tiles

SHAPES = {
    "query": (2, 4, 11, 5),
    "key": (2, 2, 13, 5),
    "value": (2, 2, 13, 7),
    "mask": (2, 4, 11, 13),
    "bias": (2, 4, 11, 13),
    "gradient": (2, 4, 11, 7),
}


def transposed(tensor: Tensor) -> Tensor:
    return tensor.mT.contiguous().mT


def other_order(tensor: Tensor) -> Tensor:
    """(batch, length, head, width) in memory, as most models have it."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def stepped(tensor: Tensor) -> Tensor:
    """Every second number of every second row."""
    wide = tensor.new_zeros((*tensor.shape[:-2], 2 * tensor.shape[-2], 2 * tensor.shape[-1]))
    wide[..., ::2, ::2] = tensor
    return wide[..., ::2, ::2]


def expanded(tensor: Tensor) -> Tensor:
    """Stride 0 along the batch and the heads."""
    return tensor[:1, :1].expand_as(tensor)


def offset(tensor: Tensor) -> Tensor:
    """Behind one other number, so that no row is aligned."""
    flat = tensor.new_zeros(tensor.numel() + 1)
    flat[1:] = tensor.flatten()
    return flat[1:].view_as(tensor)


def overlapping(tensor: Tensor) -> Tensor:
    """Rows that share numbers with their neighbors."""
    rows, width = tensor.shape[-2:]
    flat = tensor.flatten()[: rows + width]
    return flat.as_strided(tensor.shape, (0, 0, 1, 1))


LAYOUTS: list[Callable[[Tensor], Tensor]] = [transposed, other_order, stepped, expanded, offset, overlapping]


def drawn() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in SHAPES.items()}
    tensors["mask"] = tensors["mask"] < 0.7
    return tensors


def outcome(tensors: dict[str, Tensor], engine: str) -> list[Tensor]:
    # detach() keeps the layout, and the gradient of a leaf does not depend on it
    leaves = [tensors[name].detach().requires_grad_() for name in ("query", "key", "value", "bias")]
    with small_tiles():
        out, aux = attend(*leaves[:3], mask=tensors["mask"], bias=leaves[3], query_start=0, aux=AUX, engine=engine)
        grads = torch.autograd.grad(out, leaves, tensors["gradient"])
    return [out, *(getattr(aux, name) for name in AUX), *grads]


@pytest.mark.parametrize("engine", ["reference", "tiled", "native"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
@pytest.mark.parametrize("name", SHAPES)
def test_every_layout_is_as_good_as_contiguous(name: str, layout: Callable[[Tensor], Tensor], engine: str) -> None:
    tensors = drawn()
    strange = layout(tensors[name])
    assert strange.shape == SHAPES[name]
    assert not strange.is_contiguous() or strange.storage_offset() > 0
    found = outcome({**tensors, name: strange}, engine)
    right = outcome({**tensors, name: strange.contiguous().clone()}, engine)
    for actual, expected in zip(found, right, strict=True):
        finite = expected.detach()[expected.isfinite()]
        # a matrix library may sum a transposed matrix in another order
        assert error(actual, expected) <= 512 * torch.finfo(torch.float64).eps * (1.0 + float(finite.abs().max()))
