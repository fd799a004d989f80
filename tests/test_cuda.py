"""The package on a GPU: `auto`, matrices, captures and generation give there what they give on a CPU.

Every test also runs on the CPU, which shows that the test itself is right. `make cuda` runs those that need a GPU.
"""

import pytest
import torch
from torch import Tensor

import regard
from regard import masks
from regard.nn import KVCache, LanguageModel, Rotary
from regard.testing import Case, error, mechanisms
from tests.device_cases import on_device

EPS = torch.finfo(torch.float64).eps


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def agree(found: Tensor, right: Tensor, what: str = "") -> None:
    finite = right.detach()[right.isfinite()]
    size = 1.0 + float(finite.abs().max() if finite.numel() else 0.0)
    assert error(found.cpu(), right.cpu()) <= 256 * EPS * size, what


def outcome(case: Case, device: str, engine: str) -> dict[str, Tensor]:
    """Output and gradients in float64, for which `auto` takes `sdpa` or `tiled`; `flex` has tests of its own."""
    inputs, spec, leaves = on_device(case, torch.float64, device)
    out = regard.attend(*inputs, **spec, engine=engine)
    assert out.device.type == device
    weight = torch.linspace(-1.0, 2.0, out.numel(), dtype=out.dtype, device=device).view_as(out)
    grads = torch.autograd.grad((weight * out).sum(), list(leaves.values()), materialize_grads=True)
    return {"out": out} | dict(zip(leaves, grads, strict=True))


# a function's tensors cannot be moved from outside
@pytest.mark.parametrize("case", [case for case in mechanisms() if case.score != "modified"], ids=str)
def test_auto_agrees_forward_and_backward(case: Case, device: str) -> None:
    truth = outcome(case, "cpu", "reference")
    for name, found in outcome(case, device, "auto").items():
        agree(found, truth[name], name)


def test_a_matrix_is_reduced_where_it_is(device: str) -> None:
    query, key = torch.randn(1, 2, 300, 16, dtype=torch.float64), torch.randn(1, 2, 300, 16, dtype=torch.float64)
    here = regard.matrix(query, key, mask="causal")
    there = regard.matrix(query.to(device), key.to(device), mask="causal")
    assert there.entropy().device.type == device
    agree(there.entropy(), here.entropy())
    agree(there.received(), here.received())
    agree(there.pool(7, 11), here.pool(7, 11))
    agree(there.mass(masks.Window(3, 0)), here.mass(masks.Window(3, 0)))
    agree(there[0, 1, 200:210, 5:9], here[0, 1, 200:210, 5:9])


def test_a_capture_leaves_the_output_as_it_is(device: str) -> None:
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dtype=torch.float64)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    tokens = torch.randn(1, 9, 32, dtype=torch.float64)
    with torch.no_grad():
        right = regard.capture(model, tokens)
        model, tokens = model.to(device), tokens.to(device)
        out = model(tokens)
        found = regard.capture(model, tokens)
    assert torch.equal(found.output, out)
    assert len(found) == len(right) == 2
    for number in range(2):
        agree(found[number].dense(), right[number].dense())


def test_a_model_writes_the_same_with_a_cache(device: str) -> None:
    model = LanguageModel(40, layers=2, d_model=32, heads=4, kv_heads=2, position=Rotary(8)).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    tokens = torch.randint(40, (3, 9))
    right = model.generate(tokens, 12)
    model, tokens = model.to(device), tokens.to(device)
    assert torch.equal(model.generate(tokens, 12).cpu(), right)
    assert torch.equal(model.generate(tokens, 12, cache=KVCache(), chunk=4).cpu(), right)
