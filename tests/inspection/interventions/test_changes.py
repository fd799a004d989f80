"""Every change in every mechanism, against the formula written out in float64."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention as fused

import regard
from regard import masks
from regard.inspection.capture import capture
from regard.inspection.interventions import (
    Ablate,
    Average,
    Change,
    Forbid,
    Mask,
    Pattern,
    Previous,
    Temperature,
    Uniform,
    intervene,
)

N, HEADS, WIDTH = 7, 4, 6
SIZE = HEADS * WIDTH
CAUSAL = torch.ones(N, N, dtype=torch.bool).tril()


class Layer(nn.Module):
    """Causal self-attention of four heads by one of the mechanisms; the output is the heads', side by side."""

    def __init__(self, mechanism: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mechanism = mechanism
        self.projection = nn.Linear(SIZE, 3 * SIZE)
        if mechanism.startswith("multihead"):
            self.inner = inner = nn.MultiheadAttention(SIZE, HEADS, batch_first=True)
            with torch.no_grad():
                inner.in_proj_weight.copy_(self.projection.weight)
                inner.in_proj_bias.copy_(self.projection.bias)
                inner.out_proj.weight.copy_(torch.eye(SIZE))
        if mechanism == "regard.nn":
            self.ours = ours = regard.nn.MultiHeadAttention(SIZE, HEADS, mask=masks.Causal())
            with torch.no_grad():
                for part, weight, bias in zip(
                    (ours.q_proj, ours.k_proj, ours.v_proj),
                    self.projection.weight.chunk(3),
                    self.projection.bias.chunk(3),
                    strict=True,
                ):
                    part.weight.copy_(weight)
                    part.bias.copy_(bias)
                ours.out_proj.weight.copy_(torch.eye(SIZE))

    def heads(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values."""
        parts = self.projection(x).chunk(3, -1)
        return tuple(part.unflatten(-1, (HEADS, WIDTH)).transpose(-3, -2) for part in parts)

    def forward(self, x: Tensor) -> Tensor:
        match self.mechanism:
            case "multihead" | "multihead, fast":
                hidden = ~CAUSAL
                return self.inner(x, x, x, attn_mask=hidden, need_weights=False, is_causal=False)[0]  # type: ignore[no-any-return]
            case "multihead, weights":
                return self.inner(x, x, x, attn_mask=~CAUSAL)[0]  # type: ignore[no-any-return]
            case "regard.nn":
                return self.ours(x)  # type: ignore[no-any-return]
        q, k, v = self.heads(x)
        added = torch.zeros(N, N, dtype=x.dtype).masked_fill(~CAUSAL, -torch.inf)
        least = torch.zeros(N, N, dtype=x.dtype).masked_fill(~CAUSAL, torch.finfo(x.dtype).min)
        ways: dict[str, Callable[[], Any]] = {
            "fused": lambda: fused(q, k, v, is_causal=True),
            "fused, bools": lambda: fused(q, k, v, CAUSAL),
            "fused, added": lambda: fused(q, k, v, added),
            "fused, least": lambda: fused(q, k, v, least),
            "attend": lambda: regard.attend(q, k, v, mask="causal"),
            "flex": lambda: flex_attention(
                q, k, v, block_mask=create_block_mask(lambda b, h, i, j: i >= j, None, None, N, N, device="cpu")
            ),
        }
        out: Tensor = ways[self.mechanism]()
        return out.transpose(-3, -2).flatten(-2)


MECHANISMS = (
    "fused",
    "fused, bools",
    "fused, added",
    "fused, least",
    "multihead",
    "multihead, fast",
    "multihead, weights",
    "attend",
    "regard.nn",
    "flex",
)
SHOWN = torch.rand(2, 1, N, N, generator=torch.Generator().manual_seed(4)) < 0.6
OTHER = torch.rand(2, HEADS, N, N, generator=torch.Generator().manual_seed(5), dtype=torch.float64).softmax(-1)
Weights = Callable[[Tensor], Tensor]


def _previous(logits: Tensor) -> Tensor:
    weights = torch.zeros_like(logits)
    weights[..., 0, 0] = 1.0
    weights[..., range(1, N), range(N - 1)] = 1.0
    return weights


def _rows(logits: Tensor) -> Tensor:
    """Softmax; a row that sees nothing is 0."""
    return logits.softmax(-1).nan_to_num(0.0)


def _forbidden(logits: Tensor, keys: list[int]) -> Tensor:
    hidden = torch.zeros(N, dtype=torch.bool)
    hidden[keys] = True
    return _rows(logits.masked_fill(hidden, -torch.inf))


CHANGES: dict[str, tuple[Change, Weights]] = {
    "no change": (Temperature(1.0), lambda logits: logits.softmax(-1)),
    "temperature": (Temperature(2.5), lambda logits: (logits / 2.5).softmax(-1)),
    "cold": (Temperature(0.3), lambda logits: (logits / 0.3).softmax(-1)),
    "all visible": (Mask(torch.ones(N, N, dtype=torch.bool)), lambda logits: logits.softmax(-1)),
    "bools": (Mask(SHOWN), lambda logits: _rows(logits.masked_fill(~SHOWN, -torch.inf))),
    "window": (
        Mask(masks.Window(2, 0)),
        lambda logits: logits.masked_fill(torch.ones(N, N, dtype=torch.bool).tril(-3), -torch.inf).softmax(-1),
    ),
    "forbid": (Forbid([0, 3]), lambda logits: _forbidden(logits, [0, 3])),
    "uniform": (Uniform(), lambda logits: (CAUSAL.double() / CAUSAL.sum(-1, keepdim=True)).expand_as(logits)),
    "previous": (Previous(), _previous),
    "pattern": (Pattern(OTHER), lambda logits: OTHER),
}


def formula(layer: Layer, x: Tensor, weigh: Weights) -> tuple[Tensor, Tensor]:
    """Changed weights of all heads, and their outputs (batch, head, query, width), in float64."""
    double = Layer("fused").double()
    double.load_state_dict({"projection.weight": layer.projection.weight, "projection.bias": layer.projection.bias})
    q, k, v = double.heads(x.double())
    weights = weigh((q @ k.mT * WIDTH**-0.5).masked_fill(~CAUSAL, -torch.inf))
    return weights.detach(), (weights @ v).detach()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """FlexAttention outside torch.compile warns once."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        yield


def split(out: Tensor) -> Tensor:
    heads: Tensor = out.unflatten(-1, (HEADS, WIDTH))
    return heads.transpose(-3, -2)


@pytest.mark.parametrize("chosen", [None, [0, 3]], ids=str)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_chosen_heads_follow_the_formula_and_others_keep_their_bits(
    mechanism: str, change: str, chosen: list[int] | None
) -> None:
    layer, x = Layer(mechanism), torch.randn(2, N, SIZE, generator=torch.Generator().manual_seed(1))
    layer.train(mechanism != "multihead, fast")
    what, weigh = CHANGES[change]
    heads = list(range(HEADS)) if chosen is None else chosen
    others = [head for head in range(HEADS) if head not in heads]
    with torch.set_grad_enabled(mechanism not in ("multihead, fast", "flex")):
        before = layer(x)
        with intervene(layer, what, heads=chosen) as changed, capture(layer) as c:
            out = layer(x)
        assert torch.equal(layer(x), before)
    assert len(changed.layers) == 1
    weights, want = formula(layer, x, weigh)
    error = (split(out).double() - want).abs()[:, heads].max()
    assert error < 4e-6
    if mechanism not in ("multihead, fast",):
        assert torch.equal(split(out)[:, others], split(before)[:, others])
    shown = c[0].dense()[:, heads].double()
    rows = weights / weights.sum(-1, keepdim=True) if change == "pattern" else weights
    assert (shown - rows.expand(2, HEADS, N, N)[:, heads]).abs().max() < 2e-6


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_ablated_heads_are_zero_and_averaged_ones_are_the_mean(mechanism: str) -> None:
    layer, x = Layer(mechanism).eval(), torch.randn(2, N, SIZE)
    with torch.no_grad():
        before = split(layer(x))
        with intervene(layer, Ablate(), heads=[1, 2]), capture(layer) as c:
            out = split(layer(x))
        with intervene(layer, Average(), heads=0):
            mean = split(layer(x))
        plain = capture(layer, x)
    assert (out[:, [1, 2]] == 0).all()
    torch.testing.assert_close(out[:, [0, 3]], before[:, [0, 3]])
    torch.testing.assert_close(mean[:, :1], before[:, :1].mean(-2, keepdim=True).expand_as(before[:, :1]))
    torch.testing.assert_close(mean[:, 1:], before[:, 1:])
    assert torch.equal(c[0].dense(), plain[0].dense())  # what an ablated head looks at is still shown


@pytest.mark.parametrize("mechanism", [each for each in MECHANISMS if each not in ("flex", "multihead, fast")])
@pytest.mark.parametrize("change", ["temperature", "bools", "uniform", "pattern"])
def test_gradients_are_those_of_the_formula(mechanism: str, change: str) -> None:
    layer = Layer(mechanism).double()
    x = torch.randn(2, N, SIZE, dtype=torch.float64, requires_grad=True)
    what, weigh = CHANGES[change]
    with intervene(layer, what, heads=[1, 3]):
        split(layer(x)).square().sum().backward()
    found, x.grad = x.grad, None
    double = Layer("fused").double()
    q, k, v = double.heads(x)
    logits = (q @ k.mT * WIDTH**-0.5).masked_fill(~CAUSAL, -torch.inf)
    keep = torch.tensor([True, False, True, False]).view(-1, 1, 1)
    weights = torch.where(keep, logits.softmax(-1), weigh(logits))
    (weights @ v).square().sum().backward()
    torch.testing.assert_close(found, x.grad, atol=1e-9, rtol=1e-7)


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 3),
    group=st.integers(1, 3),
    kv=st.integers(1, 2),
    queries=st.integers(1, 6),
    more=st.integers(0, 3),
    seed=st.integers(0, 2**16),
    causal=st.booleans(),
    data=st.data(),
)
def test_any_sizes(
    batch: int, group: int, kv: int, queries: int, more: int, seed: int, causal: bool, data: st.DataObject
) -> None:
    make = torch.Generator().manual_seed(seed)
    heads, keys = group * kv, queries + more
    q = torch.randn(batch, heads, queries, 4, generator=make)
    k, v = torch.randn(2, batch, kv, keys, 4, generator=make)
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(more) if causal else torch.ones(queries, keys).bool()
    chosen = data.draw(st.lists(st.integers(0, heads - 1), min_size=1, max_size=heads, unique=True))

    class Model(nn.Module):
        def forward(self) -> Tensor:
            return fused(q, k, v, seen if causal else None, enable_gqa=True)

    model = Model()
    before = model()
    double = (q.double(), *(part.double().repeat_interleave(group, 1) for part in (k, v)))
    logits = (double[0] @ double[1].mT / 2).masked_fill(~seen, -torch.inf)
    position = data.draw(st.integers(0, keys - 1))
    forbidden = logits.clone()
    forbidden[..., position] = -torch.inf
    last = torch.zeros(queries, keys, dtype=torch.float64)
    for row in range(queries):
        last[row, max(0, row + more - 1)] = 1.0
    cases: list[tuple[Change, Tensor]] = [
        (Temperature(1.7), (logits / 1.7).softmax(-1)),
        (Forbid(position), _rows(forbidden)),
        (Uniform(), (seen / seen.sum(-1, keepdim=True)).double().expand_as(logits)),
        (Previous(), last.expand_as(logits)),
    ]
    others = [head for head in range(heads) if head not in chosen]
    for change, weights in cases:
        with intervene(model, change, heads=chosen):
            out = model()
        assert ((out.double() - weights @ double[2]).abs()[:, chosen] < 1e-5).all(), change
        assert torch.equal(out[:, others], before[:, others])
