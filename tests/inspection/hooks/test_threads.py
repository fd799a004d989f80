"""Layers that run in another thread than the capture are listed."""

import threading
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from regard.inspection.capture import Missed, capture
from regard.inspection.hooks.missed import OWN_THREAD, THREAD

HEADS, WIDTH = 2, 16


class Attention(nn.Module):
    """By torch's function, or by itself."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused, self.qkv = fused, nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        out = scaled_dot_product_attention(q, k, v) if self.fused else (q @ k.mT).softmax(-1) @ v
        return x + out.transpose(1, 2).flatten(2)


class Threaded(nn.Module):
    """Runs a module in a thread of its own."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        found: list[Tensor] = []
        thread = threading.Thread(target=lambda: found.append(self.inner(x)))
        thread.start()
        thread.join()
        return found[0]


class Torchs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x, x, x)[0]
        return out


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "inner, path, reason",
    [
        (lambda: Attention(True), "1.inner", THREAD),
        (lambda: Attention(False), "1.inner", OWN_THREAD),
        (lambda: nn.Sequential(nn.LayerNorm(WIDTH), Attention(False)), "1.inner.1", OWN_THREAD),
        (Torchs, "1.inner.layer", THREAD),
        (lambda: nn.TransformerEncoderLayer(WIDTH, HEADS, batch_first=True), "1.inner.self_attn", THREAD),
    ],
)
def test_layers_in_another_thread_are_listed(inner: Callable[[], nn.Module], path: str, reason: str, x: Tensor) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Attention(True), Threaded(inner())).eval()
    called = nn.Module.__call__
    with torch.no_grad():
        want = model(x)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            c = capture(model, x)
    assert torch.equal(c.output, want)
    assert c.layers == ("0",)
    assert c.missed == (Missed(path, reason, 1),)
    assert len(told) == 1
    assert nn.Module.__call__ is called


def test_other_models_in_other_threads_are_not_listed(x: Tensor) -> None:
    model = nn.Sequential(Attention(True))
    other = Threaded(nn.Sequential(Attention(True), Attention(False)))
    with capture(model) as c:
        other(model(x))
    assert c.missed == ()
