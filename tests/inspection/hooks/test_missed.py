"""Attention that a model runs and a capture does not have is listed, with the module and the reason."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

import regard
from regard import load
from regard.inspection.capture import Capture, Missed, capture
from regard.inspection.hooks.handwritten import FUNCTION, LOST, OTHER_AXIS, SUMS
from regard.inspection.hooks.missed import DIRECT, NAME, NESTED, OWN
from regard.inspection.hooks.trace import OperatorTrace
from regard.inspection.interventions import Ablate, intervene

HEADS, WIDTH = 2, 16
SIGMOID = FUNCTION.format("sigmoid")
Attend = Callable[["Attention", Tensor, Tensor, Tensor], Any]


class Attention(nn.Module):
    """Heads over a sequence that attend by a given function of queries, keys and values."""

    cache: Tensor

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend = attend
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.before, self.after = nn.Linear(HEADS, HEADS), nn.Linear(HEADS, HEADS)
        self.softmax, self.dropout = nn.Softmax(-1), nn.Dropout(0.1)
        self.latents = nn.Parameter(torch.randn(3, WIDTH))
        self.table = nn.Parameter(torch.randn(HEADS, 1, 1))
        self.register_buffer("cache", torch.zeros(2, HEADS, 8, WIDTH // HEADS))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        out: Tensor = self.out(self.attend(self, query, key, value).transpose(1, 2).flatten(2))
        return out


class Stack(nn.Module):
    def __init__(self, *functions: Attend) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(WIDTH), Attention(each)) for each in functions)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            out = block(x)
            x = out if out.shape != x.shape else x + out
        return x


def fused(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    return scaled_dot_product_attention(q, k, v)


def by_exp(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    scores = q @ k.mT
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return (weights @ v) / weights.sum(-1, keepdim=True)


def by_relu(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    return (q @ k.mT).relu().square() @ v


def over_queries(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    return (q @ k.mT).softmax(-2) @ v


def much_later(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    weights = [(q @ k.mT * scale).softmax(-1) for scale in range(1, 7)]
    return sum(each @ v for each in weights[:2])


def by_sigmoid(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    return (q @ k.mT).sigmoid() @ v


OWNS: dict[Attend, str] = {
    by_exp: SUMS,
    by_relu: FUNCTION.format("relu"),
    by_sigmoid: FUNCTION.format("sigmoid"),
    over_queries: OTHER_AXIS,
    much_later: LOST,
}


def named(function: Callable[..., Any]) -> str:
    return function.__name__


def caught(model: nn.Module, *inputs: Tensor) -> tuple[Capture, list[str]]:
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        found = capture(model, *inputs)
    return found, [str(each.message) for each in given]


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode], ids=named)
@pytest.mark.parametrize("own", OWNS, ids=named)
def test_attention_that_cannot_be_captured_is_listed(own: Attend, mode: Any, x: Tensor) -> None:
    model = Stack(fused, own).eval()
    with mode():
        want = model(x)
        c, told = caught(model, x)
    assert torch.equal(c.output, want)
    assert c.layers == ("blocks.0.1",)
    assert [(each.layer, each.reason) for each in c.missed] == [("blocks.1.1", OWNS[own])]
    assert len(told) == 1
    assert f"blocks.1.1 ({OWNS[own]})" in told[0]
    assert f"not captured: blocks.1.1 ({OWNS[own]})" in repr(c)


def linear_attention(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    return q.softmax(-1) @ (k.softmax(-2).mT @ v)


def state_space(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    decay = torch.exp(-torch.arange(5.0).unsqueeze(-1) + torch.arange(5.0)).tril()
    return (q @ k.mT * decay) @ v


def gated(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    """A softmax over a linear layer mixes two experts."""
    gates = self.before(q[..., :HEADS]).softmax(-1).unsqueeze(-2)
    return (gates @ torch.stack([k, v], -2)).squeeze(-2)


def gated_by_einsum(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    gates = torch.einsum("bhnd,de->bhne", q[..., :HEADS], self.before.weight).softmax(-1)
    return torch.einsum("bhne,bhned->bhnd", gates, torch.stack([k, v], -2))


def contrastive(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    """Softmax of similarities, as in a loss, that weighs nothing."""
    loss = (q @ k.mT).log_softmax(-1).diagonal(dim1=-2, dim2=-1).mean() + (q @ k.mT).softmax(-1).mean()
    return v * loss


def soft_embedding(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    """A softmax over a vocabulary, and the mean of its embeddings."""
    table = self.qkv.weight[:, : WIDTH // HEADS]
    return (q @ table.T).softmax(-1) @ table


def graph(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    """Two steps of a graph convolution over edges that are given."""
    edges = torch.ones(len(q), 1, 5, 5).tril() / 5
    first = (edges @ v).relu()
    joined = self.out(first.transpose(1, 2).flatten(2)).unflatten(-1, (HEADS, -1)).transpose(1, 2)
    return edges @ joined


OTHERS = [linear_attention, state_space, gated, gated_by_einsum, contrastive, soft_embedding, graph]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode], ids=named)
@pytest.mark.parametrize("other", OTHERS, ids=named)
def test_what_is_no_attention_is_not_listed(other: Attend, mode: Any, x: Tensor) -> None:
    model = nn.Sequential(Stack(fused, other, other, fused), nn.Linear(WIDTH, 7), nn.Softmax(-1)).eval()
    with mode():
        c = capture(model, x)
    assert c.layers == ("0.blocks.0.1", "0.blocks.3.1")
    assert c.missed == ()
    assert "not captured" not in repr(c)


def direct(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)[0]


ADDED = torch.linspace(-1.0, 1.0, 25).view(1, 1, 5, 5)


def direct_with_a_mask(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return kernel(q, k, v, 0.0, False, attn_mask=ADDED, scale=0.7)[0]


def fused_with_a_mask(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    return scaled_dot_product_attention(q, k, v, attn_mask=ADDED, scale=0.7)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode], ids=named)
def test_kernels_that_are_called_directly_are_captured(mode: Any, x: Tensor) -> None:
    model = Stack(direct, direct_with_a_mask)
    with mode():
        want = model(x)
        c = capture(model, x)
    assert torch.equal(c.output, want)
    assert c.missed == ()
    assert c.layers == ("blocks.0.1", "blocks.1.1")
    assert "aten._scaled_dot_product_flash_attention_for_cpu" in repr(c)
    known = capture(Stack(fused, fused_with_a_mask), x)
    assert torch.equal(c[0].dense(), known[0].dense())
    assert torch.equal(c[1].dense(), known[1].dense())


def test_kernels_that_are_called_directly_are_not_changed(x: Tensor) -> None:
    reason = DIRECT.format("_scaled_dot_product_flash_attention_for_cpu")
    model = Stack(fused, direct)
    with pytest.warns(UserWarning, match="not intercepted") as told, intervene(model, Ablate()):
        model(x)
    assert f"blocks.1.1 ({reason})" in str(told[0].message)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=named)
def test_nested_tensors_are_listed(mode: Any, x: Tensor) -> None:
    def nested(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
        given: Any = [torch.nested.as_nested_tensor([row.contiguous() for row in each]) for each in (q, k, v)]
        return scaled_dot_product_attention(*given).to_padded_tensor(0.0)

    with mode():
        c, _ = caught(Stack(fused, nested), x)
    assert c.missed == (Missed("blocks.1.1", NESTED, 1),)


def test_attend_by_a_name_that_is_not_found_is_listed(x: Tensor) -> None:
    hidden = [regard.attend]
    c, _ = caught(Stack(fused, lambda self, q, k, v: hidden[0](q, k, v)), x)
    assert c.missed == (Missed("blocks.1.1", NAME, 1),)
    c = capture(Stack(fused, lambda self, q, k, v: regard.attend(q, k, v)), x)
    assert (len(c), c.missed) == (2, ())


def test_other_models_in_the_block_are_not_listed(x: Tensor) -> None:
    model, other = Stack(fused), Stack(by_sigmoid)
    with capture(model) as c:
        other(model(x))
    assert c.missed == ()


def test_calls_are_counted_and_warned_of_once(x: Tensor) -> None:
    model = Stack(fused, by_sigmoid)
    found = capture(model)

    def twice() -> None:
        with found:
            model(x)
            assert found.missed == (Missed("blocks.1.1", SIGMOID, 1),)
            model(x)

    with pytest.warns(UserWarning, match="Stack ran attention that is not in this capture") as told:
        twice()
    assert len(told) == 1
    assert told[0].filename == __file__
    assert found.missed == (Missed("blocks.1.1", SIGMOID, 2),)


def test_the_warning_names_the_line_of_the_caller(x: Tensor) -> None:
    with pytest.warns(UserWarning, match="blocks") as told:
        capture(Stack(fused, by_sigmoid), x)
    assert told[0].filename == __file__


def test_many_layers_are_named_in_short(x: Tensor) -> None:
    c, told = caught(Stack(fused, *[by_sigmoid] * 12), x)
    assert len(c.missed) == 12
    assert "blocks.8.1 and 4 more (" in told[0]
    assert "blocks.9.1" not in told[0]


def test_a_model_of_which_nothing_is_heard(x: Tensor) -> None:
    with pytest.raises(ValueError, match=r"made no call of attention.*Not captured: blocks\.0\.1 \(its weights are"):
        capture(Stack(by_sigmoid), x)


def test_names_that_were_asked_for(x: Tensor) -> None:
    model = Stack(fused, by_sigmoid)
    assert capture(model, x, layers="blocks.0.*").missed == ()
    with pytest.warns(UserWarning, match=r"blocks\.1\.1"):
        assert len(capture(model, x, layers=0).missed) == 1


def test_backward_passes_and_layers_computed_again(x: Tensor) -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Stack(fused, fused)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = checkpoint(self.inner, x, use_reentrant=False)
            return out

    model = Again()
    with capture(model) as c:
        model(x).sum().backward()
    assert len(c) == 2
    assert c.missed == ()


def test_files_keep_what_was_missed(x: Tensor, tmp_path: Path) -> None:
    c, _ = caught(Stack(fused, by_sigmoid), x)
    c.save(tmp_path / "run.safetensors")
    again = load(tmp_path / "run.safetensors")
    assert isinstance(again, Capture)
    assert again.missed == c.missed == (Missed("blocks.1.1", SIGMOID, 1),)
    assert repr(again) == repr(c)
    assert c.encoder.missed == c.missed
    with pytest.warns(UserWarning, match="not in this capture"):
        spilled = capture(Stack(fused, by_sigmoid), x, spill=tmp_path / "other.safetensors")
    assert spilled.missed == c.missed


def test_tensors_of_the_model_are_not_held() -> None:
    noted: list[str] = []
    trace = OperatorTrace(nn.Linear(2, 2), noted.append, OWN)
    query = torch.ones(1, 2, 2)
    for _ in range(10_000):
        trace.record(torch.ops.aten.bmm.default, (query, query), {}, torch.empty(1, 2, 2))
    assert len(trace._storages) < 9_000


def test_autocast(x: Tensor) -> None:
    model = Stack(fused, by_sigmoid, gated).eval()
    with torch.autocast("cpu", torch.bfloat16):
        want = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        c, _ = caught(model, x)
    assert torch.equal(c.output, want)
    assert c.missed == (Missed("blocks.1.1", SIGMOID, 1),)


def test_parameters_that_are_not_made_yet(x: Tensor) -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner = nn.LazyLinear(WIDTH), Stack(fused)

        def forward(self, x: Tensor) -> Any:
            return self.inner(self.first(x))

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Lazy modules are a new feature")
        model = Lazy()
    c = capture(model, x)
    assert (len(c), c.missed) == (1, ())
