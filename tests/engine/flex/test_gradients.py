"""Gradients of what FlexAttention is given.

On a CPU torch refuses them, though its dense formula has them: here that refusal is lifted, which shows that the
lowering is right, tables and sinks included. That the kernels are right only a GPU can show.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention as torchs

from regard import attend, scores
from regard.engine import flex
from regard.engine.flex import call
from regard.testing import PRODUCTS, SOFTMAXES, Case, Sizes, error, mechanisms
from tests.device_cases import on_device

EPS = torch.finfo(torch.float64).eps
SERVED = [case for case in mechanisms() if case.score in [*PRODUCTS, "modified"] and case.normalizer in SOFTMAXES]
SERVED = [case for case in dict.fromkeys(SERVED) if not case.dropout]
LEARNED = ["modified", "causal t5", "causal shared distance", "causal hiding", "window sink", "per head", "learned"]


def outcome(inputs: list[Tensor], spec: dict[str, Any], leaves: dict[str, Tensor], engine: str) -> dict[str, Tensor]:
    """Output, lse, and the gradients of a functional of both."""
    out, aux = attend(*inputs, **spec, aux=("lse",), engine=engine)
    assert aux.lse is not None
    weight = torch.linspace(-1.0, 2.0, out.numel(), dtype=out.dtype, device=out.device).view_as(out)
    rows = torch.where(aux.lse.isfinite(), aux.lse, 0.0)
    loss = (weight * out).sum() + (weight[..., 0] * rows).sum()
    grads = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    return {"out": out, "lse": aux.lse} | {f"grad {name}": grad for name, grad in zip(leaves, grads, strict=True)}


@pytest.fixture
def _willing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch traces a call, as it does for a GPU, and runs its dense formula forward and backward."""
    monkeypatch.setattr(torchs, "_validate_device", lambda *tensors: None)
    monkeypatch.setattr(call, "_uncompiled", nullcontext)
    monkeypatch.setattr(flex, "supports", lambda request: None)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def willing(test: Any) -> Any:
    """With what torch says of its own doing left out."""
    for said in ("flex_attention called without torch.compile", "The .grad attribute of a Tensor that is not a leaf"):
        test = pytest.mark.filterwarnings(f"ignore:{said}")(test)
    return pytest.mark.usefixtures("_willing")(test)


def agree(case: Case) -> None:
    inputs, spec, leaves = case.build()
    truth = outcome(inputs, spec, leaves, "reference")
    found = outcome(inputs, spec, leaves, "flex")
    for name, right in truth.items():
        finite = right.detach()[right.isfinite()]
        size = 1.0 + float(finite.abs().max() if finite.numel() else 0.0)
        assert error(found[name], right) <= 256 * EPS * size, name


@willing
@pytest.mark.parametrize("case", [case for case in SERVED if str(case) in LEARNED], ids=str)
def test_tables_and_sinks_get_their_gradients(case: Case) -> None:
    agree(case)


@pytest.mark.slow
@willing
@pytest.mark.parametrize("case", [case for case in SERVED if str(case) not in LEARNED], ids=str)
def test_every_mechanism_gets_its_gradients(case: Case) -> None:
    agree(case)


SIZES = [Sizes(), Sizes(queries=150, keys=290, d_key=24, d_value=40, query_start=140, group=2)]


@pytest.mark.cuda
@pytest.mark.parametrize("size", SIZES, ids=["short", "long"])
@pytest.mark.parametrize("case", [case for case in SERVED if case.score != "modified"], ids=str)
def test_a_gpu_agrees_forward_and_backward(case: Case, size: Sizes) -> None:
    case = replace(case, sizes=size)
    found = outcome(*on_device(case, torch.float32, "cuda"), "flex")
    plain = outcome(*on_device(case, torch.float32, "cuda"), "reference")
    truth = outcome(*on_device(case, torch.float64, "cuda"), "reference")
    for name, right in truth.items():
        finite = right.detach()[right.isfinite()]
        size_of = 1.0 + float(finite.abs().max() if finite.numel() else 0.0)
        allowed = max(2 * error(plain[name], right), 4 * torch.finfo(torch.float32).eps * size_of)
        assert error(found[name], right) <= allowed, name


@pytest.mark.cuda
def test_a_gpu_asks_functions_with_tables() -> None:
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 300, 64, generator=draw).cuda().requires_grad_() for _ in range(3))
    slope = torch.tensor([0.1, 0.2], device="cuda", requires_grad=True)
    score = scores.Modified(scores.ScaledDot(), lambda s, b, h, i, j: s - slope[h] * (i - j).abs())
    leaves = {"query": q, "key": k, "value": v, "slope": slope}
    found = outcome([q, k, v], {"score": score, "mask": "causal"}, leaves, "flex")
    truth = outcome([q, k, v], {"score": score, "mask": "causal"}, leaves, "reference")
    for name, right in truth.items():
        assert error(found[name], right) <= 1e-5 * (1.0 + float(right.detach().abs().max())), name


@pytest.mark.cuda
def test_a_gpu_compiles_twice_for_any_length() -> None:
    from torch._dynamo.utils import counters

    before = counters["stats"]["unique_graphs"]
    for n in (256, 384, 1000, 130, 4096):
        x = torch.randn(1, 2, n, 64, device="cuda")
        attend(x, x, x, mask="causal", score=scores.SoftCapped(scores.ScaledDot(), 17.0), engine="flex")
    assert counters["stats"]["unique_graphs"] - before <= 2
