"""MultiHeadAttention: torch's layer with the same parameters, any spec, groups, and what training asks of a module."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import regard
from regard import biases, masks, scores
from regard.nn import (
    T5,
    Additive,
    ALiBi,
    ConcatMLP,
    Distance,
    General,
    KVCache,
    MultiHeadAttention,
    Relative,
    Rotary,
    Sink,
    Sinusoidal,
    fuse,
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"kdim": 12, "vdim": 20},
        {"add_zero_attn": True},
        {"kdim": 12, "vdim": 20, "bias": False},
    ],
    ids=str,
)
def test_torchs_layer_loads_and_agrees(options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    theirs = nn.MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64, **options)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours = MultiHeadAttention.from_torch(theirs)
    query = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)
    key = torch.randn(2, 7, options.get("kdim", 24), dtype=torch.float64)
    value = torch.randn(2, 7, options.get("vdim", 24), dtype=torch.float64)
    hidden = torch.rand(5, 7) < 0.3
    hidden[:, 0] = False
    right = theirs(query, key, value, attn_mask=hidden, need_weights=False)[0]
    found = ours(query, key, value, mask=~hidden)
    torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-12)
    grads = [torch.autograd.grad(out.square().sum(), query)[0] for out in (found, right)]
    torch.testing.assert_close(*grads, rtol=0, atol=1e-13 * float(grads[1].abs().max()))


def test_a_learned_key_is_refused() -> None:
    with pytest.raises(ValueError, match="add_bias_kv"):
        MultiHeadAttention.from_torch(nn.MultiheadAttention(8, 2, add_bias_kv=True))


def test_own_state_dicts_load_too() -> None:
    one, other = (MultiHeadAttention(16, 4, kv_heads=2, d_k=3, d_v=5) for _ in range(2))
    other.load_state_dict(one.state_dict())
    x = torch.randn(1, 6, 16)
    assert torch.equal(one(x), other(x))
    assert torch.equal(copy.deepcopy(one)(x), one(x))


def test_sizes_of_its_own() -> None:
    layer = MultiHeadAttention(24, 6, kv_heads=2, d_k=5, d_v=7, d_query=10, d_key=11, d_value=12, d_out=9)
    out = layer(torch.randn(2, 3, 10), torch.randn(2, 4, 11), torch.randn(2, 4, 12))
    assert out.shape == (2, 3, 9)
    assert layer.k_proj.weight.shape == (10, 11)


@pytest.mark.parametrize(
    "spec",
    [
        {"score": scores.Cosine(4.0)},
        {"mask": masks.Window(2, 0), "bias": biases.ALiBi(4)},
        {"mask": "causal", "temperature": 0.5},
    ],
    ids=str,
)
def test_the_spec_is_attends(spec: dict[str, Any]) -> None:
    layer = MultiHeadAttention(16, 4, **spec)
    x = torch.randn(2, 9, 16)
    heads = [part(x).unflatten(-1, (4, 4)).transpose(1, 2) for part in (layer.q_proj, layer.k_proj, layer.v_proj)]
    right = layer.out_proj(regard.attend(*heads, **spec).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x), right)


def test_both_masks_apply_and_biases_add_up() -> None:
    layer = MultiHeadAttention(8, 2, mask="causal", bias=biases.ALiBi(2))
    x, seen, more = torch.randn(1, 6, 8), torch.rand(6, 6) < 0.7, torch.randn(6, 6)
    found = layer(x, mask=seen, bias=more)
    layer.mask, layer.bias = masks.Causal() & masks.Dense(seen), biases.ALiBi(2) + biases.Dense(more)
    torch.testing.assert_close(found, layer(x))


def test_dropout_only_in_training() -> None:
    layer = MultiHeadAttention(8, 2, dropout=0.5)
    x = torch.randn(1, 6, 8)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, "heads must divide d_model"),
        ({"heads": 4, "kv_heads": 3}, "kv_heads must divide heads"),
        ({"heads": 4, "dropout": 1.0}, "dropout must be at least 0"),
        ({"heads": 0}, "heads must be at least 1"),
    ],
    ids=str,
)
def test_bad_sizes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(16, **options)


MODULES: dict[str, Callable[[], dict[str, Any]]] = {
    "general": lambda: {"score": General(4)},
    "general per head": lambda: {"score": General(4, heads=4)},
    "additive": lambda: {"score": Additive(4, 7)},
    "additive per head": lambda: {"score": Additive(4, 7, heads=4)},
    "additive with a bias": lambda: {"score": Additive(4, 7, bias=True)},
    "concat": lambda: {"score": ConcatMLP(4, 7, activation="gelu", heads=4)},
    "concat without bias": lambda: {"score": ConcatMLP(4, 7, bias=False)},
    "shaw": lambda: {"position": Relative(4, 3)},
    "transformer-xl": lambda: {"position": Relative(4, 3, heads=4)},
    "t5": lambda: {"position": T5(4, buckets=8, max_distance=12)},
    "distance": lambda: {"position": Distance(4, 5)},
    "sink": lambda: {"normalizer": Sink(4)},
    "temperature": lambda: {"temperature": nn.Parameter(torch.tensor([0.5, 1.0, 2.0, 3.0]))},
    "norms": lambda: {"q_norm": nn.RMSNorm(4), "k_norm": nn.RMSNorm(4)},
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_own_parameters_that_learn(name: str) -> None:
    torch.manual_seed(3)
    layer = MultiHeadAttention(16, 4, **MODULES[name]())
    own = {n: p for n, p in layer.named_parameters() if "proj" not in n}
    assert own
    layer(torch.randn(2, 9, 16)).square().sum().backward()
    for at, parameter in own.items():
        assert parameter.grad is not None, at
        assert parameter.grad.isfinite().all(), at
        assert parameter.grad.abs().max() > 0, at
    other = MultiHeadAttention(16, 4, **MODULES[name]())
    other.load_state_dict(layer.state_dict())
    x = torch.randn(1, 5, 16)
    assert torch.equal(layer(x), other(x))
    assert set(own) == {n for n in layer.state_dict() if "proj" not in n}


def test_swapping_the_score_is_one_argument() -> None:
    x = torch.randn(1, 6, 16)
    for score in (None, scores.Dot(), scores.Cosine(3.0), General(4), Additive(4, 8), ConcatMLP(4, 8)):
        assert MultiHeadAttention(16, 4, score=score)(x).shape == x.shape


def test_a_scheme_that_is_a_score_needs_the_scores_place() -> None:
    with pytest.raises(ValueError, match="leave out score="):
        MultiHeadAttention(16, 4, score=scores.Dot(), position=Relative(4, 2))


def test_a_scheme_that_is_a_bias_adds_to_the_bias() -> None:
    x = torch.randn(1, 6, 16)
    layer = MultiHeadAttention(16, 4, bias=biases.Dense(torch.randn(6, 6)), position=ALiBi(4))
    alone = copy.deepcopy(layer)
    alone.position, alone.bias = None, layer.bias + biases.ALiBi(4)  # type: ignore[operator]
    torch.testing.assert_close(layer(x), alone(x))


def test_a_rotation_does_not_cross() -> None:
    layer = MultiHeadAttention(16, 4, position=Rotary(4))
    with pytest.raises(ValueError, match="keys come from another"):
        layer(torch.randn(1, 3, 16), torch.randn(1, 4, 16))


def test_without_a_batch_axis() -> None:
    layer, x = MultiHeadAttention(16, 4, mask="causal", position=Rotary(4)), torch.randn(5, 16)
    torch.testing.assert_close(layer(x), layer(x[None])[0])


def test_cross_attention_starts_at_0() -> None:
    layer = MultiHeadAttention(8, 2, mask="causal")
    x, memory = torch.randn(1, 3, 8), torch.randn(1, 5, 8)
    changed = torch.cat([memory[:, :1], torch.randn(1, 4, 8)], 1)
    assert torch.equal(layer(x, memory)[:, 0], layer(x, changed)[:, 0])


def test_the_summary_of_bert_base() -> None:
    summary = MultiHeadAttention(768, 12).summary(512)
    assert (summary.d_model, summary.heads, summary.d_k, summary.d_v) == (768, 12, 64, 64)
    assert summary.total_parameters == 4 * (768 * 768 + 768)
    assert summary.total_flops == 4 * 2 * 512 * 768 * 768 + 2 * 2 * 512 * 512 * 768
    text = str(summary)
    assert "2,362,368" in text
    assert "d_model  width of inputs and outputs" in text


def test_the_summary_counts_groups_and_scores() -> None:
    grouped = MultiHeadAttention(64, 8, kv_heads=2, score=Additive(8, 5)).summary(10, 20)
    assert grouped.parameters == {
        "score": 5 * 8 * 2 + 5,
        "q_proj": 64 * 65,
        "k_proj": 16 * 65,
        "v_proj": 16 * 65,
        "out_proj": 64 * 65,
    }
    assert grouped.flops["scores"] == 10 * 20 * 8 * 2 * 5
    assert "heads over 2 of keys" in str(grouped)
    assert "queries over 20 keys" in str(grouped)


def test_it_says_what_is_not_plain() -> None:
    layer = MultiHeadAttention(16, 4, kv_heads=2, mask="causal", score=scores.Cosine(2.0), dropout=0.1)
    text = repr(layer)
    for part in (
        "d_model=16, heads=4, d_k=4, d_v=4",
        "kv_heads=2",
        "mask='causal'",
        "score=Cosine(scale=2.0)",
        "dropout=0.1",
    ):
        assert part in text
    assert "score" not in repr(MultiHeadAttention(16, 4))


def test_a_sequence_may_start_anywhere() -> None:
    layer = MultiHeadAttention(16, 4, mask=masks.Causal() & ~masks.Prefix(6), position=Rotary(4)).double()
    x = torch.randn(1, 5, 16, dtype=torch.float64)
    found = layer(x, query_start=4)
    assert not found[0, :2].abs().max() > layer.out_proj.bias.abs().max() + 1e-12  # positions 4 and 5 see nothing
    late = MultiHeadAttention(16, 4, mask="causal", position=Rotary(4)).double()
    late.load_state_dict(layer.state_dict())
    torch.testing.assert_close(found[:, 2:], late(x[:, 2:]), rtol=1e-11, atol=1e-12)
    with pytest.raises(TypeError, match="need a cache"):
        layer(x, query_start=torch.tensor([1]))
    with pytest.raises(ValueError, match="leave out query_start"):
        layer(x, query_start=1, cache=KVCache())


@pytest.mark.parametrize("options", [{}, {"kv_heads": 2, "d_v": 3}, {"position": Rotary(4)}], ids=str)
def test_fused_projections_are_the_same(options: dict[str, Any]) -> None:
    layer, x = MultiHeadAttention(16, 4, projection_bias=False, **options), torch.randn(2, 5, 16)
    state = copy.deepcopy(layer.state_dict())
    with torch.no_grad():
        right = layer(x)
        calls: list[int] = []
        assert fuse(layer) is layer
        torch.testing.assert_close(layer(x), right)
        assert all(torch.equal(layer.state_dict()[name], value) for name, value in state.items())
        layer.k_proj.weight.mul_(2)  # a part of the whole: a change shows
        changed = layer(x)
        assert not torch.equal(changed, right)
        layer.k_proj.register_forward_hook(lambda *_: calls.append(1))
        torch.testing.assert_close(layer(x), changed)
        assert calls == [1]
        torch.testing.assert_close(copy.deepcopy(layer)(x), changed)
        torch.testing.assert_close(layer.double()(x.double()).float(), changed, rtol=1e-4, atol=1e-5)
    layer(x.double()).sum().backward()
    assert layer.k_proj.weight.grad is not None


def test_layers_with_biases_stay_apart() -> None:
    layer, x = MultiHeadAttention(16, 4), torch.randn(2, 5, 16)
    nn.init.normal_(layer.k_proj.bias)
    with torch.no_grad():
        assert torch.equal(layer(x), fuse(layer)(x))


def test_nothing_in_nothing_out() -> None:
    layer = MultiHeadAttention(16, 4, mask="causal", position=Rotary(4))
    assert layer(torch.zeros(0, 5, 16)).shape == (0, 5, 16)
    assert layer(torch.zeros(2, 0, 16)).shape == (2, 0, 16)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MultiHeadAttention(16, 4)(torch.zeros(2, 5, 15)), r"query must be \(batch, length, 16\), got shape"),
        (lambda: MultiHeadAttention(16, 4)(torch.zeros(16)), r"query must be \(batch, length, 16\)"),
        (lambda: MultiHeadAttention(16, 4)(torch.zeros(1, 2, 16), torch.zeros(1, 2, 8)), "key must be"),
        (lambda: MultiHeadAttention(16, 4, mask="casual"), "mask='casual' is not known"),
        (lambda: MultiHeadAttention(16, 4).summary(-5), "queries must be at least 0"),
        (lambda: MultiHeadAttention(16, 4, position=Sinusoidal(16)), "added to embeddings"),
    ],
)
def test_misuse_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_value_is_a_scheme_too() -> None:
    x = torch.randn(1, 6, 16)
    layer = MultiHeadAttention(16, 4, position=biases.ALiBi(4))
    module = MultiHeadAttention(16, 4, position=ALiBi(4))
    module.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), module(x))
