"""merge: attention over parts of the keys, joined by their lse, is attention over all of them."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from regard import attend
from regard.engine.partial import Partial, merge
from regard.testing import error

EPS = torch.finfo(torch.float64).eps


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(actual: Tensor, expected: Tensor) -> None:
    """A few hundred operations in another order, each with one rounding. Fails on NaN."""
    finite = expected.detach()[expected.isfinite()]
    assert error(actual, expected) <= 512 * EPS * (1.0 + float(finite.abs().max() if finite.numel() else 0.0))


def partial(query: Tensor, key: Tensor, value: Tensor, keys: slice, start: int, engine: str = "tiled") -> Partial:
    """Attention over some keys only; the queries keep their place among all of them."""
    out, aux = attend(
        query,
        key[:, :, keys],
        value[:, :, keys],
        mask="causal",
        query_start=start - keys.start,
        aux="lse",
        engine=engine,
    )
    return Partial(out, torch.as_tensor(aux.lse))


@pytest.mark.parametrize("engine", ["reference", "tiled", "native"])
@given(st.lists(st.integers(0, 17), max_size=5), st.integers(-4, 17), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_any_split_in_any_order_is_the_whole(engine: str, cuts: list[int], start: int, random: object) -> None:
    query, key, value = draw(2, 4, 6, 5), draw(2, 2, 17, 5, seed=1), draw(2, 2, 17, 3, seed=2)
    whole = partial(query, key, value, slice(0, 17), start, engine)
    edges = sorted([0, 17, *cuts])  # equal cuts make a part without keys
    parts = [partial(query, key, value, slice(*edge), start, engine) for edge in pairwise(edges)]
    random.shuffle(parts)  # type: ignore[attr-defined]
    total = parts[0]
    for part in parts[1:]:
        total = merge(total, part)
    close(total.out, whole.out)
    close(total.lse, whole.lse)


def test_two_empty_parts_stay_empty() -> None:
    none = Partial(torch.zeros(2, 3, 4), torch.full((2, 3), -torch.inf))
    both = merge(none, none)
    assert torch.equal(both.out, none.out)
    assert torch.equal(both.lse, none.lse)


@pytest.mark.parametrize("left", [True, False])
def test_an_empty_part_changes_no_bit_and_gets_no_gradient(left: bool) -> None:
    none = Partial(torch.zeros(2, 3, 4, requires_grad=True), torch.full((2, 3), -torch.inf, requires_grad=True))
    some = Partial(torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 3, requires_grad=True))
    both = merge(none, some) if left else merge(some, none)
    assert torch.equal(both.out, some.out)
    assert torch.equal(both.lse, some.lse)
    leaves = (none.out, none.lse, some.out)
    grads = torch.autograd.grad(both.out, leaves, torch.full((2, 3, 4), torch.nan), materialize_grads=True)
    assert not grads[0].any()
    assert not grads[1].any()
    assert grads[2].isnan().all()


def test_very_different_parts() -> None:
    """Neither overflow nor NaN when one part outweighs the other beyond what a float can say."""
    for low, high in ((-1e30, 1e30), (-3e38, 3e38), (0.0, 200.0)):
        weak = Partial(torch.full((1, 1), 5.0), torch.full((1,), low))
        strong = Partial(torch.full((1, 1), 7.0), torch.full((1,), high))
        for both in (merge(weak, strong), merge(strong, weak)):
            assert torch.equal(both.out, strong.out)
            assert torch.equal(both.lse, strong.lse)


def test_a_poisoned_row_stays_alone() -> None:
    out, lse = torch.randn(3, 4), torch.randn(3)
    out[1, 2], lse[2] = torch.inf, torch.nan
    left = Partial(out.requires_grad_(), lse.requires_grad_())
    right = Partial(torch.randn(3, 4, requires_grad=True), torch.randn(3, requires_grad=True))
    both = merge(left, right)
    assert both.out[2].isnan().all()
    assert both.lse[2].isnan()
    assert both.out[1, 2] == torch.inf
    assert both.out[[0, 0, 1, 1], [0, 1, 0, 1]].isfinite().all()
    loss = both.out[0].sum() + both.out[1, :2].sum() + both.lse[:2].sum()
    for grad in torch.autograd.grad(loss, (left.out, left.lse, right.out, right.lse)):
        assert grad.isfinite().all()
        assert not grad[2].any()


def test_derivatives() -> None:
    parts = [draw(3, 2), draw(3, seed=1), draw(3, 2, seed=2), draw(3, seed=3)]

    def joined(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        both = merge(Partial(tensors[0], tensors[1]), Partial(tensors[2], tensors[3]))
        return both.out, both.lse

    assert gradcheck(joined, tuple(part.requires_grad_() for part in parts), atol=1e-7, rtol=1e-5)


def test_queries_that_differ_are_refused() -> None:
    left, right = (Partial(torch.zeros(1, 2, count, 4), torch.zeros(1, 2, count)) for count in (3, 2))
    with pytest.raises(ValueError, match=r"got lse \(1, 2, 3\) and \(1, 2, 2\); split the keys, not the queries"):
        merge(left, right)
