"""Laws of attention that need no oracle."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import attend, biases, masks
from regard.engine.request import AUX
from regard.testing import Case, error, mechanisms, small_tiles

ENGINES = ["reference", "tiled", "native"]
EPS = torch.finfo(torch.float64).eps
engines = pytest.mark.parametrize("engine", ENGINES)
SHAPES = ((2, 6, 11, 5), (2, 2, 13, 5), (2, 2, 13, 7))


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs() -> list[Tensor]:
    return [draw(*shape, seed=seed) for seed, shape in enumerate(SHAPES)]


def within(actual: Tensor, expected: Tensor, bound: float) -> None:
    """No element further away than `bound`; fails on NaN and on another shape."""
    assert actual.shape == expected.shape
    assert float((actual - expected).detach().abs().max()) <= bound


def close(actual: Tensor, expected: Tensor, what: object = "") -> None:
    """A few hundred operations in another order, each with one rounding. Fails on NaN."""
    finite = expected[expected.isfinite()].double()
    size = 1.0 + float(finite.abs().max() if finite.numel() else 0.0)
    assert error(actual, expected) <= 512 * EPS * size, what


@engines
@pytest.mark.parametrize("case", [c for c in mechanisms() if "sink" not in c.normalizer and not c.dropout], ids=str)
def test_weights_sum_to_one(case: Case, engine: str) -> None:
    """Values of 1 give 1 wherever a key is seen: two sums of the same m numbers, each within m roundings."""
    (query, key, value), spec, _ = case.build()
    with small_tiles():
        out, aux = attend(query, key, torch.ones_like(value), **spec, aux=("peak_at", "received"), engine=engine)
    seen = (torch.as_tensor(aux.peak_at) >= 0).unsqueeze(-1)
    bound = key.shape[-2] * EPS
    within(out, seen.to(out.dtype).expand_as(out), bound)
    within(torch.as_tensor(aux.received).sum(-1), seen.to(out.dtype).sum((-1, -2)), bound * query.shape[-2])


@engines
def test_a_sink_takes_what_is_missing(engine: str) -> None:
    (query, key, value), spec, leaves = Case(normalizer="sink", mask="window").build()
    with small_tiles():
        out, aux = attend(query, key, torch.ones_like(value), **spec, aux="lse", engine=engine)
    share = (leaves["sink"].view(1, -1, 1) - torch.as_tensor(aux.lse)).exp()
    within(out[..., 0] + share, torch.ones_like(share), 2 * key.shape[-2] * EPS)


@engines
@pytest.mark.parametrize("size", [1.0, 1e3, 1e6])
def test_a_constant_added_to_a_row_changes_nothing(size: float, engine: str) -> None:
    """Each logit is rounded once more, at the size of the constant: half of `bound`. A weight feels that of its own
    logit and of the lse; the entropy, by its derivative w · (ln w + entropy), at most ln(keys) times as much."""
    query, key, value = inputs()
    constant = draw(6, 11, 1, seed=5) * size
    spec: dict[str, Any] = {"mask": "causal", "engine": engine, "aux": ("lse", "entropy", "peak_at")}
    with small_tiles():
        plain, aux = attend(query, key, value, **spec)
        moved, more = attend(query, key, value, **spec, bias=constant)
    top = float(constant.abs().max()) + float((query @ key.repeat_interleave(3, 1).mT).abs().max())
    bound = EPS * top
    within(moved, plain, (bound + 512 * EPS) * float(value.abs().max()))
    assert torch.equal(torch.as_tensor(more.peak_at), torch.as_tensor(aux.peak_at))
    within(torch.as_tensor(more.lse) - constant[..., 0], torch.as_tensor(aux.lse), bound + 512 * EPS)
    within(torch.as_tensor(more.entropy), torch.as_tensor(aux.entropy), math.log(13) * bound + 512 * EPS)


@engines
@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax", "hard"])
def test_gradients_of_a_row_of_logits_sum_to_zero(normalizer: str, engine: str) -> None:
    case = Case(bias="dense", mask="combined", normalizer=normalizer)
    (query, key, value), spec, leaves = case.build()
    with small_tiles():
        out = attend(query, key, value, **spec, engine=engine)
        (grad,) = torch.autograd.grad(out.square().sum(), leaves["dense"], materialize_grads=True)
    grad = grad.detach()
    assert normalizer == "hard" or float(grad.abs().max()) > 0.01
    within(grad.sum(-1), torch.zeros_like(grad[..., 0]), 512 * EPS * (1 + float(grad.abs().max())))


@engines
def test_the_order_of_keys_does_not_matter(engine: str) -> None:
    query, key, value = inputs()
    mask, bias = draw(2, 1, 11, 13, seed=6) < 0.5, draw(6, 11, 13, seed=7)
    order = torch.randperm(13, generator=torch.Generator().manual_seed(8))
    names = tuple(name for name in AUX if name != "distance")
    with small_tiles():
        out, aux = attend(query, key, value, mask=mask, bias=bias, aux=names, engine=engine)
        mixed, more = attend(
            query,
            key[:, :, order],
            value[:, :, order],
            mask=mask[..., order],
            bias=bias[..., order],
            aux=names,
            engine=engine,
        )
    close(mixed, out)
    for name in ("lse", "entropy", "peak", "max_logit"):
        close(getattr(more, name), getattr(aux, name), name)
    close(torch.as_tensor(more.received), torch.as_tensor(aux.received)[..., order])
    found, right = torch.as_tensor(more.peak_at), torch.as_tensor(aux.peak_at)
    assert torch.equal(torch.where(found < 0, found, order[found]), right)


@engines
@pytest.mark.parametrize("kept", [0, 1, 6, 13])
def test_masked_keys_are_absent_keys(kept: int, engine: str) -> None:
    query, key, value = inputs()
    names = tuple(name for name in AUX if name != "received")
    spec: dict[str, Any] = {"bias": biases.ALiBi(6), "query_start": 2, "aux": names, "engine": engine}
    with small_tiles():
        out, aux = attend(query, key, value, mask=masks.Lengths(torch.tensor([kept, kept])), **spec)
        cut, more = attend(query, key[:, :, :kept], value[:, :, :kept], **spec)
    close(out, cut)
    for name in names:
        close(getattr(aux, name), getattr(more, name), name)


@engines
def test_the_future_cannot_change_the_past(engine: str) -> None:
    query, key, value = inputs()
    with small_tiles():
        whole = attend(query, key, value, mask="causal", query_start=0, engine=engine)
        key[:, :, 7:], value[:, :, 7:] = draw(2, 2, 6, 5, seed=8), draw(2, 2, 6, 7, seed=9)
        changed = attend(query, key, value, mask="causal", query_start=0, engine=engine)
    assert torch.equal(changed[:, :, :7], whole[:, :, :7])
    assert not torch.equal(changed[:, :, 7:], whole[:, :, 7:])


def test_the_comparison_can_fail() -> None:
    one = torch.ones(3)
    for wrong in (one + 1e-3, one * torch.nan, one[:2]):
        with pytest.raises(AssertionError):
            within(wrong, one, 1e-6)
        with pytest.raises(AssertionError):
            close(wrong, one)
