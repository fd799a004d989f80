"""Meta and fake tensors get results with shapes and no numbers, and gradients alike; whatever needs numbers refuses."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import regard
from regard import biases, masks, normalizers, scores

SPECS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "causal": lambda: {"mask": "causal"},
    "lengths": lambda: {"mask": masks.Lengths(torch.tensor([3, 4]))},
    "documents": lambda: {"mask": masks.Documents(torch.zeros(7, dtype=torch.int64)), "query_start": 2},
    "function": lambda: {"mask": masks.Where(lambda b, h, i, j: j <= i)},
    "alibi": lambda: {"bias": biases.ALiBi(4)},
    "sink": lambda: {"normalizer": normalizers.Softmax(0.5)},
    "sparsemax": lambda: {"normalizer": normalizers.Sparsemax()},
    "dropout": lambda: {"dropout": 0.2},
    "modified": lambda: {"score": scores.Modified(scores.ScaledDot(), lambda s, b, h, i, j: s * 2)},
    "statistics": lambda: {"aux": ("lse", "peak_at", "received")},
    "native": lambda: {"engine": "native"},
}


def drawn(device: str) -> tuple[Tensor, Tensor, Tensor]:
    sizes = ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6))
    query, key, value = (torch.zeros(size, device=device, requires_grad=True) for size in sizes)
    return query, key, value


def check(inputs: tuple[Tensor, Tensor, Tensor], spec: dict[str, Any]) -> None:
    query = inputs[0]
    result = regard.attend(*inputs, **spec)
    out, aux = result if isinstance(result, tuple) else (result, None)
    assert (out.shape, out.dtype, out.device) == ((2, 4, 5, 6), query.dtype, query.device)
    if aux is not None:
        assert aux.lse.shape == aux.peak_at.shape == (2, 4, 5)
        assert aux.received.shape == (2, 4, 7)
    for leaf, grad in zip(inputs, torch.autograd.grad(out.sum(), inputs), strict=True):
        assert grad.shape == leaf.shape
        assert grad.device == leaf.device


@pytest.mark.parametrize("spec", SPECS)
def test_meta_tensors(spec: str) -> None:
    check(drawn("meta"), SPECS[spec]())


@pytest.mark.parametrize("spec", SPECS)
def test_fake_tensors(spec: str) -> None:
    arguments = SPECS[spec]()
    with FakeTensorMode(allow_non_fake_inputs=True):
        check(drawn("cpu"), arguments)


def test_fake_tensors_outside_their_mode() -> None:
    query = FakeTensorMode().from_tensor(torch.randn(1, 2, 4, 8))
    assert isinstance(regard.attend(query, query, query), FakeTensor)


def test_a_graph_of_fake_tensors_has_one_node() -> None:
    traced = make_fx(lambda x: regard.attend(x, x, x, mask="causal"), tracing_mode="fake")(torch.randn(1, 2, 4, 8))
    assert [node.name for node in traced.graph.nodes if "regard" in str(node.target)] == ["attend"]


def test_shapes_are_checked() -> None:
    query, key, value = drawn("meta")
    with pytest.raises(ValueError, match="key and value must have the same length"):
        regard.attend(query, key, value[..., :3, :])


@pytest.mark.parametrize("what", ["key", "bias", "mask", "matrix", "plan"])
def test_what_needs_numbers_refuses(what: str) -> None:
    real = torch.randn(1, 2, 4, 8)
    mode = FakeTensorMode()
    fake, table = mode.from_tensor(real), mode.from_tensor(torch.zeros(4, 4))
    calls: dict[str, Callable[[], object]] = {
        "key": lambda: regard.attend(real, fake, real),
        "bias": lambda: regard.attend(real, real, real, bias=table),
        "mask": lambda: regard.attend(real, real, real, mask=mode.from_tensor(torch.ones(4, 4, dtype=torch.bool))),
        "matrix": lambda: regard.matrix(fake, fake),
        "plan": lambda: regard.plan(fake, fake, fake),
    }
    with pytest.raises(ValueError, match="is a meta or fake tensor, which holds a shape but no numbers"):
        calls[what]()
