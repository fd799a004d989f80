"""Attention that a model runs and a capture does not have is listed, with the module and the reason."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

import regard
from regard import load
from regard.inspection.capture import Capture, Missed, capture
from regard.inspection.hooks.missed import DIRECT, NAME, NESTED, OWN, OperatorTrace

HEADS, WIDTH = 2, 16
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


def plain(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    return (q @ k.mT * 0.4).softmax(-1) @ v


def by_einsum(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    weights = torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1)
    return torch.einsum("bhij,bhjd->bhid", weights, v)


def by_batches(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    bias = torch.zeros(q.shape[0] * HEADS, q.shape[2], k.shape[2])
    scores = torch.baddbmm(bias, q.flatten(0, 1), k.flatten(0, 1).mT, beta=1.0, alpha=0.3)
    return torch.bmm(scores.softmax(-1), v.flatten(0, 1)).unflatten(0, q.shape[:2])


def by_heads(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    rows = [
        torch.stack([(a @ b.T).softmax(-1) @ c for a, b, c in zip(*each, strict=True)])
        for each in zip(q, k, v, strict=True)
    ]
    return torch.stack(rows)


def masked(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    scores = 5.0 * torch.tanh((q @ k.mT / 3 + self.table) / 5.0)
    hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1)
    weights = self.softmax(scores.masked_fill(hidden, -torch.inf).double()).to(q.dtype)
    return self.dropout(torch.where(hidden, 0.0, weights)) @ v.contiguous()


def floored(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    return torch.max(q @ k.mT, torch.tensor(-3.0)).softmax(-1) @ v


def talking(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    """As in CaiT."""
    weights = self.before((q @ k.mT).permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(-1)
    return self.dropout(self.after(weights.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)) @ v


def talking_by_einsum(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    weights = torch.einsum("bhij,hg->bgij", q @ k.mT, self.before.weight).softmax(-1)
    return torch.einsum("bhij,hg->bgij", weights, self.after.weight) @ v


def class_attention(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    return ((q[:, :, :1] * 0.3) @ k.mT).softmax(-1) @ v


def cross_covariance(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    """As in XCiT: over features."""
    q, k, v = q.mT, k.mT, v.mT
    weights = (normalize(q, dim=-1) @ normalize(k, dim=-1).mT * self.table).softmax(-1)
    return (weights @ v).mT


def by_exp(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    scores = q @ k.mT
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return (weights @ v) / weights.sum(-1, keepdim=True)


def by_lse(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    return ((scores := q @ k.mT) - scores.logsumexp(-1, keepdim=True)).exp() @ v


def best(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    scores = q @ k.mT
    return scores.where(scores >= scores.topk(2, -1).values[..., -1:], -torch.inf).softmax(-1) @ v


def weighted_sum(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    return ((q @ k.mT).softmax(-1).unsqueeze(-1) * v.unsqueeze(2)).sum(-2)


def by_relu(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    return (q @ k.mT).relu().square() @ v


def by_sigmoid(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    return (q @ k.mT).sigmoid() @ v


def learned_queries(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    """As in Perceiver: queries trace from parameters alone."""
    own = self.out(self.latents).unflatten(-1, (HEADS, -1)).transpose(0, 1).expand(len(k), -1, -1, -1)
    return (own @ k.mT).softmax(-1) @ v


def cached(self: Attention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    """Keys in a buffer of the module."""
    self.cache[:, :, : k.shape[2]] = k
    return (q @ self.cache[:, :, : k.shape[2]].mT).softmax(-1) @ v


OWNS = [
    *(
        plain,
        by_einsum,
        by_batches,
        by_heads,
        masked,
        floored,
        talking,
        talking_by_einsum,
        class_attention,
        cross_covariance,
    ),
    *(by_exp, by_lse, best, weighted_sum, by_relu, by_sigmoid, learned_queries, cached),
]


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
def test_attention_of_ones_own_is_listed(own: Attend, mode: Any, x: Tensor) -> None:
    model = Stack(fused, own).eval()
    with mode():
        want = model(x)
        c, told = caught(model, x)
    assert torch.equal(c.output, want)
    assert c.layers == ("blocks.0.1",)
    assert [(each.layer, each.reason) for each in c.missed] == [("blocks.1.1", OWN)]
    assert len(told) == 1
    assert f"blocks.1.1 ({OWN})" in told[0]
    assert f"not captured: blocks.1.1 ({OWN})" in repr(c)


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


def test_kernels_that_are_called_directly_are_listed(x: Tensor) -> None:
    c, _ = caught(Stack(fused, direct), x)
    reason = DIRECT.format("_scaled_dot_product_flash_attention_for_cpu")
    assert c.missed == (Missed("blocks.1.1", reason, 1),)


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
    model, other = Stack(fused), Stack(plain)
    with capture(model) as c:
        other(model(x))
    assert c.missed == ()


def test_calls_are_counted_and_warned_of_once(x: Tensor) -> None:
    model = Stack(fused, plain)
    found = capture(model)

    def twice() -> None:
        with found:
            model(x)
            assert found.missed == (Missed("blocks.1.1", OWN, 1),)
            model(x)

    with pytest.warns(UserWarning, match="Stack ran attention that is not in this capture") as told:
        twice()
    assert len(told) == 1
    assert told[0].filename == __file__
    assert found.missed == (Missed("blocks.1.1", OWN, 2),)


def test_the_warning_names_the_line_of_the_caller(x: Tensor) -> None:
    with pytest.warns(UserWarning, match="blocks") as told:
        capture(Stack(fused, plain), x)
    assert told[0].filename == __file__


def test_many_layers_are_named_in_short(x: Tensor) -> None:
    c, told = caught(Stack(fused, *[plain] * 12), x)
    assert len(c.missed) == 12
    assert "blocks.8.1 and 4 more (" in told[0]
    assert "blocks.9.1" not in told[0]


def test_a_model_of_which_nothing_is_heard(x: Tensor) -> None:
    with pytest.raises(ValueError, match=r"made no call of attention.*Not captured: blocks\.0\.1 \(it multiplies"):
        capture(Stack(plain), x)


def test_names_that_were_asked_for(x: Tensor) -> None:
    model = Stack(fused, plain)
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
    c, _ = caught(Stack(fused, plain), x)
    c.save(tmp_path / "run.safetensors")
    again = load(tmp_path / "run.safetensors")
    assert isinstance(again, Capture)
    assert again.missed == c.missed == (Missed("blocks.1.1", OWN, 1),)
    assert repr(again) == repr(c)
    assert c.encoder.missed == c.missed
    with pytest.warns(UserWarning, match="not in this capture"):
        spilled = capture(Stack(fused, plain), x, spill=tmp_path / "other.safetensors")
    assert spilled.missed == c.missed


def test_tensors_of_the_model_are_not_held() -> None:
    noted: list[str] = []
    trace = OperatorTrace(nn.Linear(2, 2), noted.append, OWN)
    query = torch.ones(1, 2, 2)
    for _ in range(10_000):
        trace.record(torch.ops.aten.bmm.default, (query, query), {}, torch.empty(1, 2, 2))
    assert len(trace._flags) < 9_000


def test_autocast(x: Tensor) -> None:
    model = Stack(fused, plain, gated).eval()
    with torch.autocast("cpu", torch.bfloat16):
        want = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        c, _ = caught(model, x)
    assert torch.equal(c.output, want)
    assert c.missed == (Missed("blocks.1.1", OWN, 1),)


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
