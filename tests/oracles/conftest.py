"""What the oracles share: engines, inputs, float64 in the oracle's own code, and agreement of values and gradients."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from regard.testing import small_tiles

Compute = Callable[..., Tensor]

# Both sides compute the same formula in float64 and differ in the order of their sums only. A sum of n terms is off by
# at most n · eps of the sum of their absolute values, typically √n; every number here is a chain of a few sums over
# width, keys or queries (tens of terms), so 64 roundings of the largest entry hold them with a margin.
ROUNDINGS = 64


@pytest.fixture(params=["reference", "tiled", "small tiles"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of an engine; "small tiles" is `tiled` cut so fine that the small inputs here take many tiles."""
    if request.param != "small tiles":
        yield request.param
        return
    with small_tiles(height=3, segment=5):
        yield "tiled"


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


def close(ours: Tensor, theirs: Tensor, what: str) -> None:
    """Equal up to ROUNDINGS of the largest entry in float64; NaN and Inf are never right."""
    for whose, tensor in (("ours", ours), ("theirs", theirs)):
        assert tensor.dtype == torch.float64, f"{what}: {whose} is {tensor.dtype}, not float64"
        assert bool(tensor.isfinite().all()), f"{what}: {whose} is not finite everywhere"
    magnitude = theirs.abs().max().item()
    assert magnitude > 0, f"{what}: the oracle is 0 everywhere, which proves nothing"
    budget = ROUNDINGS * torch.finfo(torch.float64).eps * magnitude
    torch.testing.assert_close(ours, theirs, atol=budget, rtol=0, msg=lambda text: f"{what}: {text}")


def derivatives(compute: Compute, inputs: dict[str, Tensor], order: int) -> Iterator[tuple[str, Tensor]]:
    """The output and its derivatives, each along the same random direction for every `compute`; names with values."""
    generator = torch.Generator().manual_seed(1)

    def direction(of: Tensor) -> Tensor:
        return torch.randn(of.shape, generator=generator, dtype=torch.float64)

    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs.values()]
    out = compute(*leaves)
    yield "output", out.detach()
    along = direction(out).requires_grad_(order > 1)
    # First derivatives alone take another path through an engine than those that are derived again.
    first = torch.autograd.grad(out, leaves, along.detach(), retain_graph=order > 1)
    for name, found in zip(inputs, first, strict=True):
        yield f"derivative by {name}", found
    if order > 1:
        first = torch.autograd.grad(out, leaves, along, create_graph=True)
        second = torch.autograd.grad(first, [*leaves, along], [direction(x) for x in leaves])
        names = [*inputs, "direction"]
        yield from zip([f"derivative by {name}, again" for name in inputs], first, strict=True)
        yield from zip([f"second derivative by {name}" for name in names], second, strict=True)


def agreement(ours: Compute, theirs: Compute, inputs: dict[str, Tensor], *, order: int = 1) -> None:
    """Same output for the same inputs, and the same derivatives up to `order` by every one of them."""
    for (name, mine), (_, other) in zip(
        derivatives(ours, inputs, order), derivatives(theirs, inputs, order), strict=True
    ):
        close(mine, other, name)


@pytest.fixture(name="close")
def close_fixture() -> Callable[..., None]:
    """See `close` above."""
    return close


@pytest.fixture
def agree() -> Callable[..., None]:
    """See `agreement` above."""
    return agreement
