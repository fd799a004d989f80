"""torch.func and forward-mode derivatives: right, or refused; never a tangent that is dropped."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, jacrev, jvp, vmap

import regard
from regard import attend
from regard.testing import error

pytestmark = [
    pytest.mark.filterwarnings("ignore:regard runs this on 'reference'"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),  # torch's own, in forward mode
]


def inputs(seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(1, 2, 7, 4, generator=generator, dtype=torch.float64) for _ in range(3)]


def summed(query: Tensor, key: Tensor, value: Tensor, **more: Any) -> Tensor:
    out: Tensor = attend(query, key, value, mask="causal", **more)
    return out.square().sum()


def test_a_tangent_is_the_slope() -> None:
    query, key, value = inputs()
    way = inputs(1)[0]
    attend(query, key, value, mask="causal")  # a call seen before must not take the short way
    tangent = jvp(lambda q: summed(q, key, value), (query,), (way,))[1]
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(summed(forward_ad.make_dual(query, way), key, value)).tangent
    step = 1e-6
    slope = (summed(query + step * way, key, value) - summed(query - step * way, key, value)) / (2 * step)
    assert abs(float(tangent - slope)) < 1e-6 * abs(float(slope))
    assert dual is not None
    assert torch.equal(dual, tangent)


def test_gradients_by_torch_func_are_those_of_autograd() -> None:
    query, key, value = inputs()
    leaf = query.clone().requires_grad_()
    summed(leaf, key, value, engine="native").backward()
    assert leaf.grad is not None
    assert error(grad(summed)(query, key, value), leaf.grad) < 1e-12
    assert jacrev(lambda q: attend(q, key, value))(query).shape == (1, 2, 7, 4, 1, 2, 7, 4)


@pytest.mark.parametrize("engine", ["native", "tiled"])
def test_other_engines_say_who_can(engine: str) -> None:
    query, key, value = inputs()
    attend(query, key, value, mask="causal", engine=engine)
    with pytest.raises(ValueError, match=r"under torch\.func only plain torch operators run.*engine='reference'"):
        grad(lambda q: summed(q, key, value, engine=engine))(query)
    with (
        forward_ad.dual_level(),
        pytest.raises(ValueError, match="under forward-mode derivatives only plain torch operators run"),
    ):
        summed(forward_ad.make_dual(query, query), key, value, engine=engine)


def test_a_mapped_axis_is_a_leading_axis() -> None:
    query, key, value = inputs()
    with pytest.raises(ValueError, match="give the mapped axis"):
        vmap(lambda q: attend(q, key, value))(torch.stack([query, query]))


@pytest.mark.filterwarnings("ignore:`torch.jit.trace", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", ["auto", "reference", "tiled", "sdpa", "matrix", "layer"])
def test_torch_jit_trace_is_refused(name: str) -> None:
    """It wrote the results of one call into its graph, or memory that held none yet."""
    query, key, value = inputs()
    layer = regard.nn.MultiHeadAttention(4, 2).double().requires_grad_(False)
    attend(query, key, value)  # a call seen before must not take the short way

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if name == "matrix":
            return regard.matrix(q, k).entropy()
        if name == "layer":
            found: Tensor = layer(q[:, 0])
            return found
        return regard.sdpa(q, k, v) if name == "sdpa" else attend(q, k, v, engine=name)

    with pytest.raises(
        ValueError,
        match=r"torch\.jit\.trace cannot follow .* use torch\.compile, torch\.export\.export .* or torch\.onnx",
    ):
        torch.jit.trace(call, (query, key, value))
    assert call(query, key, value).isfinite().all()  # nothing is left behind
