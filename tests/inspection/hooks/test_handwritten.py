"""Attention that a model writes out as products and a softmax is captured with the bits of its weights."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils.checkpoint import checkpoint

from regard.inspection.capture import Capture, capture
from regard.inspection.capture.layer import CapturedLayer
from regard.inspection.hooks.handwritten import CHANGED, CHANNELS, MIXED, SOFTMAX
from tests.inspection.hooks.written import (
    BATCH,
    HEADS,
    LENGTH,
    PLAIN,
    WIDTH,
    Attend,
    Attention,
    by_matmul,
    channels,
    differential,
    gated_weights,
    in_place,
    joined,
    masked,
    model_of,
    split,
    talking,
    talking_by_convolution,
    without_heads,
)

SAID: list[tuple[Attend, str]] = [
    *((attend, SOFTMAX) for attend in PLAIN),
    (talking, SOFTMAX + MIXED),
    (talking_by_convolution, SOFTMAX + MIXED),
    (differential, SOFTMAX + CHANGED),
    (gated_weights, SOFTMAX + CHANGED),
    (channels, CHANNELS),
]


def named(value: Any) -> str:
    return getattr(value, "__name__", "")


@pytest.fixture
def x() -> Tensor:
    return torch.randn(BATCH, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1))


def noted(model: nn.Module) -> list[Tensor]:
    """What the model noted since the last call."""
    layer = next(module for module in model.modules() if isinstance(module, Attention))
    found, layer.noted = layer.noted, []
    return found


def same_bits(c: Capture, expected: list[Tensor]) -> None:
    assert len(c) == len(expected)
    for matrix, weights in zip(c, expected, strict=True):
        assert matrix.shape == weights.shape
        assert torch.equal(matrix.dense(), weights)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode], ids=named)
@pytest.mark.parametrize(("attend", "said"), SAID, ids=named)
def test_weights_have_the_bits_of_the_softmax(attend: Attend, said: str, mode: Any, x: Tensor) -> None:
    model = model_of(attend)
    with mode():
        torch.manual_seed(3)
        want = model(x)
        noted(model)
        torch.manual_seed(3)
        c = capture(model, x)
    assert torch.equal(c.output, want)
    same_bits(c, noted(model))
    assert c.missed == ()
    layers = [layer for layer in c._captured if isinstance(layer, CapturedLayer)]
    assert {layer.mechanism for layer in layers} == {said}
    assert all(layer.off <= 8 * torch.finfo(torch.float32).eps for layer in layers)


@pytest.mark.parametrize("attend", PLAIN, ids=named)
def test_training_goes_on_as_without_a_capture(attend: Attend, x: Tensor) -> None:
    if attend is in_place:
        pytest.skip("it has no gradients")
    grads = []
    for captured in (False, True):
        model = model_of(attend).train()
        torch.manual_seed(5)
        if captured:
            with capture(model) as c:
                model(x).square().sum().backward()
            same_bits(c, noted(model)[:1])
        else:
            model(x).square().sum().backward()
        grads.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*grads, strict=True):
        assert (one is None) == (other is None)
        assert one is None or other is None or torch.equal(one, other)


@pytest.mark.parametrize("reentrant", [False, True])
def test_layers_that_are_computed_again_for_gradients_are_captured_once(reentrant: bool, x: Tensor) -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model_of(masked)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = checkpoint(self.inner, x, use_reentrant=reentrant)
            return out

    model = Again()
    with capture(model) as c:
        model(x.requires_grad_()).sum().backward()
    same_bits(c, noted(model)[:1])


def test_types(x: Tensor) -> None:
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        model = model_of(by_matmul).to(dtype)
        c = capture(model, x.to(dtype))
        (weights,) = noted(model)
        assert weights.dtype == dtype
        assert torch.equal(c[0].dense(), weights.to(torch.promote_types(dtype, torch.float32)))
    model = model_of(by_matmul)
    with torch.autocast("cpu", torch.bfloat16):
        c = capture(model, x)
    same_bits(c, [each.float() for each in noted(model)])


def test_a_function_transform(x: Tensor) -> None:
    model = model_of(without_heads)
    with capture(model) as c:
        torch.func.vmap(model)(x.unsqueeze(1))
    assert c[0].shape[-2:] == (LENGTH, LENGTH)
    assert c[0].shape[0] * c[0].shape[1] == BATCH


def test_scripted_modules_are_captured_under_their_own_name(x: Tensor) -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).chunk(3, -1)
            return torch.matmul(torch.softmax(torch.matmul(q, k.transpose(-2, -1)), -1), v)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted: Any = torch.jit.script(Plain())
    model = nn.Sequential(scripted, nn.Linear(WIDTH, WIDTH)).eval()
    c = capture(model, x)
    assert c.layers == ("0",)
    q, k, _ = scripted.qkv(x).chunk(3, -1)
    assert torch.equal(c[0].dense(), (q @ k.mT).softmax(-1).unsqueeze(1))


def output_of_a_language_model(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(h @ embedding.T), and the mean embedding."""
    table = self.positions.flatten(0, 1)
    return joined((split(q) @ table.T).softmax(-1) @ table) + v


def router(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    shares: Tensor = self.before(q[..., :HEADS]).softmax(-1)
    return torch.einsum("bne,ebnd->bnd", shares, torch.stack([q, k, v]))


def contrastive(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    pairs = (q @ k.mT).softmax(-1)
    return v * pairs.diagonal(dim1=-2, dim2=-1).log().mean()


def retrieval(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The nearest rows by cosine similarity."""
    similar = normalize(q, dim=-1) @ normalize(k, dim=-1).mT
    best = similar.softmax(-1).argmax(-1)
    return v.gather(1, best.unsqueeze(-1).expand_as(v))


def pooling(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A mean that a linear layer weighs."""
    weights: Tensor = self.before(q[..., :HEADS]).sum(-1, keepdim=True).softmax(1)
    return (weights.mT @ v).expand_as(v)


def linear_attention(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q.softmax(-1) @ (k.softmax(1).mT @ v)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode], ids=named)
@pytest.mark.parametrize(
    "other", [output_of_a_language_model, router, contrastive, retrieval, pooling, linear_attention], ids=named
)
def test_other_softmaxes_are_no_attention(other: Attend, mode: Any, x: Tensor) -> None:
    model = nn.Sequential(model_of(by_matmul)[:2], Attention(other)).eval()
    with mode():
        c = capture(model, x)
    assert c.layers == ("0.1",)
    assert c.missed == ()
