"""The short way for calls seen before: the bits of the long way, whatever changes between two calls."""

import pytest
import torch
from torch import Tensor

from regard import attend, masks, scores
from regard.engine.native import call_cache
from regard.engine.native.library import library

pytestmark = pytest.mark.skipif(library() is None, reason="the package was installed without its C++ core")


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_cache, "_calls", {})


def inputs(dtype: torch.dtype = torch.float32, width: int = 16) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    sizes = ((2, 4, 9, width), (2, 2, 33, width), (2, 2, 33, 8))
    query, key, value = (torch.randn(size, generator=draw).to(dtype) for size in sizes)
    return query, key, value


def additive(hidden: int, width: int = 16, phi: str = "tanh", offset: bool = False) -> scores.ConcatMLP:
    draw = torch.Generator().manual_seed(1)
    shapes = ((hidden, width), (hidden, width), (hidden,), (hidden,))
    w_query, w_key, b, v = (torch.randn(shape, generator=draw) for shape in shapes)
    return scores.ConcatMLP(w_query, w_key, b if offset else None, v, activation=phi)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("phi", ["tanh", "sigmoid", "relu", "gelu"])
@pytest.mark.parametrize("hidden", [5, 32])
def test_an_additive_score_has_the_same_bits(phi: str, hidden: int, dtype: torch.dtype) -> None:
    given, score = inputs(dtype), additive(hidden, phi=phi, offset=True)
    first = attend(*given, score=score, mask="causal", query_start=24, engine="native")
    assert len(call_cache._calls) == 1
    second = attend(*given, score=score, mask="causal", query_start=24, engine="native")
    assert torch.equal(first, second)
    assert first.dtype == second.dtype == dtype


def test_matrices_may_change_between_calls() -> None:
    given, score = inputs(), additive(32)
    attend(*given, score=score, engine="native")
    for tensor in (score.w_query, score.w_key, score.v):
        tensor.mul_(-3.0)
        found = attend(*given, score=score, engine="native")
        assert len(call_cache._calls) == 1
        torch.testing.assert_close(found, attend(*given, score=score, engine="reference"))
    other = scores.ConcatMLP(score.w_query + 1, score.w_key, None, score.v * 2)
    torch.testing.assert_close(attend(*given, score=other, engine="native"), attend(*given, score=other))
    assert len(call_cache._calls) == 1


def test_another_score_of_the_same_shapes_is_another_call() -> None:
    given, one = inputs(), additive(32)
    others = [one, additive(32, phi="relu"), additive(32, offset=True), scores.Additive(one.w_query, one.w_key, one.v)]
    for score in others + others:
        torch.testing.assert_close(
            attend(*given, score=score, engine="native"), attend(*given, score=score, engine="reference")
        )
    assert len(call_cache._calls) == 4


def test_what_learns_takes_the_long_way() -> None:
    given, score = inputs(), additive(32)
    attend(*given, score=score, engine="native")
    score.v.requires_grad_()
    attend(*given, score=score, engine="native").sum().backward()
    assert score.v.grad is not None
    assert bool(score.v.grad.isfinite().all())
    with torch.no_grad():
        assert not attend(*given, score=score, engine="native").requires_grad


def test_numbers_that_are_not_finite_take_the_long_way() -> None:
    query, key, value = inputs()
    score, mask = additive(32), masks.Lengths([20, 20])
    clean = attend(query, key, value, score=score, mask=mask, engine="native")
    for poison in (torch.nan, torch.inf, 1e38):
        key[:, :, 20:], value[:, :, 20:] = poison, poison
        assert torch.equal(attend(query, key, value, score=score, mask=mask, engine="native"), clean)
    key[:, :, 3] = torch.nan
    assert bool(attend(query, key, value, score=score, mask=mask, engine="native").isnan().all())


def test_compiled_calls_do_not_meet_it() -> None:
    given, score = inputs(), additive(32)
    right = attend(*given, score=score, engine="native")
    compiled = torch.compile(lambda *qkv: attend(*qkv, score=score, engine="native"), backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(*given), right)


def test_gradients_have_the_same_bits() -> None:
    given = [tensor.requires_grad_() for tensor in inputs()]
    runs = []
    for _ in range(2):
        out = attend(*given, mask="causal", query_start=24, engine="native")
        runs.append((out, *torch.autograd.grad(out.square().sum(), given)))
    assert len(call_cache._calls) == 1
    for first, second in zip(*runs, strict=True):
        assert torch.equal(first, second)


def test_an_output_that_was_changed_is_refused() -> None:
    query, key, value = (tensor.requires_grad_() for tensor in inputs())
    for _ in range(2):
        out = attend(query, key, value, engine="native")
        with torch.no_grad():
            out.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()
