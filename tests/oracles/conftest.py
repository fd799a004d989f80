"""What the oracles share: engines, inputs, float64 in the oracle's own code, and agreement of values and gradients."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from regard.engine import schedule

Compute = Callable[..., Tensor]

# Both sides compute the same formula in float64 and differ in the order of their sums only. A sum of n terms is off by
# at most n · eps of the sum of their absolute values, typically √n; every number here is a chain of a few sums over
# width, keys or queries (tens of terms), so 64 roundings of the largest entry hold them with a margin.
ROUNDINGS = 64


class Sizes(NamedTuple):
    """Distinct primes, so that swapped axes cannot go unnoticed."""

    batch: int = 2
    heads: int = 3
    queries: int = 11
    keys: int = 17
    width: int = 7
    d_value: int = 5


@pytest.fixture(params=["reference", "tiled", "small tiles"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an engine; "small tiles" is `tiled` cut so fine that the small inputs here take many tiles."""
    name = str(request.param)
    if name == "small tiles":
        monkeypatch.setattr(schedule, "HEIGHT", 3)
        monkeypatch.setattr(schedule, "SEGMENT", 5)
        return "tiled"
    return name


@pytest.fixture
def sizes() -> Sizes:
    return Sizes()


@pytest.fixture
def draw() -> Callable[..., Tensor]:
    """`draw(2, 3, 5)`: normal numbers in float64, new ones in each call, the same in each run of the test."""
    generator = torch.Generator().manual_seed(20170612)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    return normal


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Their code names float32; while a test runs, the names `torch.float` and `Tensor.float` stand for float64."""
    monkeypatch.setattr(torch, "float", torch.float64)
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def close(ours: Tensor, theirs: Tensor, what: str, roundings: float = ROUNDINGS) -> None:
    """Equal up to `roundings` of the largest entry in float64; NaN and Inf are never right."""
    for whose, tensor in (("ours", ours), ("theirs", theirs)):
        assert tensor.dtype == torch.float64, f"{what}: {whose} is {tensor.dtype}, not float64"
        assert bool(tensor.isfinite().all()), f"{what}: {whose} is not finite everywhere"
    magnitude = theirs.abs().max().item()
    assert magnitude > 0, f"{what}: the oracle is 0 everywhere, which proves nothing"
    budget = roundings * torch.finfo(torch.float64).eps * magnitude
    torch.testing.assert_close(ours, theirs, atol=budget, rtol=0, msg=lambda text: f"{what}: {text}")


def agreement(
    ours: Compute, theirs: Compute, inputs: dict[str, Tensor], *, order: int = 1, roundings: float = ROUNDINGS
) -> None:
    """Same output for the same inputs, and the same derivatives up to `order` for every one of them."""
    outputs, leaves = [], []
    for compute in (ours, theirs):
        fresh = [tensor.detach().clone().requires_grad_() for tensor in inputs.values()]
        outputs.append([compute(*fresh)])
        leaves.append(fresh)
    names = ["output"]
    generator = torch.Generator().manual_seed(1)
    for level in range(order + 1):
        for name, mine, other in zip(names, *outputs, strict=True):
            close(mine, other, name, roundings)
        if level == order:
            break
        # along one random direction, the same on both sides
        along = [torch.randn(t.shape, generator=generator, dtype=torch.float64) for t in outputs[1]]
        outputs = [
            list(torch.autograd.grad(out, fresh, along, create_graph=level + 1 < order))
            for out, fresh in zip(outputs, leaves, strict=True)
        ]
        names = [f"derivative {level + 1} by {name}" for name in inputs]


@pytest.fixture(name="close")
def close_fixture() -> Callable[..., None]:
    """See `close` above."""
    return close


@pytest.fixture
def agree() -> Callable[..., None]:
    """See `agreement` above."""
    return agreement
