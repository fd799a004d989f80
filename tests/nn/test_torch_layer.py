"""MultiHeadAttention called as torch's nn.MultiheadAttention: its masks, in which True is hidden, and its results."""

import copy
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import regard
from regard import biases, masks
from regard.nn import KVCache, MultiHeadAttention

BATCH, QUERIES, KEYS, WIDTH, HEADS = 3, 5, 7, 24, 4


def both_layers(**options: Any) -> tuple[nn.MultiheadAttention, MultiHeadAttention]:
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=torch.float64, **options).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours = MultiHeadAttention(WIDTH, HEADS, batch_first=True).double().eval()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def same(found: Any, right: Any) -> None:
    """Both results are those of torch."""
    assert isinstance(found, tuple)
    for ours, theirs in zip(found, right, strict=True):
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            assert ours.shape == theirs.shape
            assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def padding(*lengths: int, keys: int = KEYS) -> Tensor:
    return torch.arange(keys) >= torch.tensor(lengths).unsqueeze(1)


PAIRS = torch.rand(QUERIES, KEYS, generator=torch.Generator().manual_seed(0)) < 0.4
PAIRS[:, 0] = False
PER_HEAD = torch.rand(BATCH * HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(1)) < 0.4
PER_HEAD[..., 0] = False
ADDED = torch.randn(QUERIES, KEYS, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

CALLS: dict[str, dict[str, Any]] = {
    "nothing hidden": {"key_padding_mask": None},
    "padding": {"key_padding_mask": padding(7, 4, 1)},
    "padding on the left": {"key_padding_mask": padding(5, 4, 1).flip(-1)},
    "padding as numbers": {
        "key_padding_mask": torch.zeros(BATCH, KEYS).double().masked_fill(padding(7, 4, 1), -torch.inf)
    },
    "padding that is added": {"key_padding_mask": torch.linspace(-1, 1, BATCH * KEYS).double().view(BATCH, KEYS)},
    "pairs": {"attn_mask": PAIRS},
    "pairs by head": {"attn_mask": PER_HEAD},
    "pairs as numbers": {"attn_mask": ADDED},
    "pairs by head as numbers": {"attn_mask": ADDED * torch.ones(BATCH * HEADS, 1, 1).double()},
    "both": {"attn_mask": PAIRS, "key_padding_mask": padding(7, 4, 1)},
    "causal": {"attn_mask": torch.ones(QUERIES, KEYS).triu(1).bool(), "is_causal": True},
    "causal and padded": {
        "attn_mask": torch.ones(QUERIES, KEYS).triu(1).bool(),
        "is_causal": True,
        "key_padding_mask": padding(7, 4, 1),
    },
}
RESULTS: list[dict[str, Any]] = [
    {},
    {"need_weights": True},
    {"need_weights": False},
    {"average_attn_weights": False},
    {"need_weights": True, "average_attn_weights": False},
    {"need_weights": False, "average_attn_weights": False},
]


@pytest.mark.parametrize("results", RESULTS, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_cross_attention_is_torchs(name: str, results: dict[str, Any]) -> None:
    theirs, ours = both_layers()
    query, key = torch.randn(BATCH, QUERIES, WIDTH).double(), torch.randn(BATCH, KEYS, WIDTH).double()
    arguments = CALLS[name] | results
    same(ours(query, key, key, **arguments), theirs(query, key, key, **arguments))


@pytest.mark.parametrize("results", RESULTS[1:], ids=str)
def test_self_attention_is_torchs(results: dict[str, Any]) -> None:
    theirs, ours = both_layers()
    x = torch.randn(BATCH, KEYS, WIDTH).double()
    causal = nn.Transformer.generate_square_subsequent_mask(KEYS, dtype=torch.float64)
    for arguments in ({}, {"key_padding_mask": padding(7, 4, 1)}, {"attn_mask": causal, "is_causal": True}):
        same(ours(x, x, x, **arguments, **results), theirs(x, x, x, **arguments, **results))


@pytest.mark.parametrize("average", [True, False])
def test_without_a_batch(average: bool) -> None:
    theirs, ours = both_layers()
    x = torch.randn(KEYS, WIDTH).double()
    for arguments in (
        {"key_padding_mask": torch.arange(KEYS) >= 4},
        {"attn_mask": torch.ones(KEYS, KEYS).triu(1).bool()},
        {"attn_mask": torch.ones(HEADS, KEYS, KEYS).triu(1).bool()},
    ):
        given: dict[str, Any] = {**arguments, "average_attn_weights": average}
        same(ours(x, x, x, **given), theirs(x, x, x, **given))


def test_gradients_are_torchs() -> None:
    theirs, ours = both_layers()
    x = torch.randn(BATCH, KEYS, WIDTH).double().requires_grad_()
    arguments: dict[str, Any] = {"key_padding_mask": padding(7, 4, 1), "average_attn_weights": False}
    grads = []
    for layer in (ours, theirs):
        out, weights = layer(x, x, x, **arguments)
        grads.append(torch.autograd.grad(out.square().sum() + weights.square().sum(), x)[0])
    assert_close(grads[0], grads[1], rtol=1e-9, atol=1e-11 * float(grads[1].abs().max()))


def test_causal_needs_no_mask() -> None:
    _, ours = both_layers()
    x = torch.randn(BATCH, KEYS, WIDTH).double()
    out, weights = ours(x, x, x, is_causal=True)
    assert torch.equal(out, ours(x, mask="causal"))
    assert bool((weights.triu(1) == 0).all())


def test_any_of_torchs_arguments_gives_torchs_result_and_none_of_them_a_tensor() -> None:
    ours = MultiHeadAttention(WIDTH, HEADS)
    x = torch.randn(2, KEYS, WIDTH)
    assert isinstance(ours(x, x, x), Tensor)
    for arguments in ({"key_padding_mask": None}, {"attn_mask": None}, {"is_causal": False}, {"need_weights": True}):
        out, weights = ours(x, x, x, **arguments)
        assert torch.equal(out, ours(x))
        assert weights.shape == (2, KEYS, KEYS)
    assert ours(x, x, x, need_weights=False)[1] is None


def test_weights_are_those_of_any_spec() -> None:
    x = torch.randn(BATCH, KEYS, WIDTH)
    for spec in (
        {"mask": masks.Window(2, 1), "bias": biases.ALiBi(HEADS), "kv_heads": 2, "temperature": 0.5},
        {"normalizer": regard.normalizers.Sparsemax()},
        {"normalizer": regard.normalizers.Softmax(0.3), "position": regard.nn.Rotary(WIDTH // HEADS)},
        {"score": regard.scores.Cosine(5.0)},
    ):
        layer = MultiHeadAttention(WIDTH, HEADS, **spec).eval()
        found = layer(x, x, x, key_padding_mask=padding(7, 4, 2), average_attn_weights=False)[1]
        captured = regard.capture(layer, x, mask=masks.Lengths([7, 4, 2]))[0].dense()
        assert_close(found, captured)


def test_weights_are_dropped_as_the_output_is() -> None:
    layer = MultiHeadAttention(WIDTH, 1, dropout=0.5).double()
    x = torch.randn(1, KEYS, WIDTH).double()
    torch.manual_seed(1)
    out, weights = layer(x, x, x, need_weights=True)
    assert bool((weights == 0).any())
    assert_close(out, layer.out_proj(weights @ layer.v_proj(x)))
    torch.manual_seed(1)
    assert torch.equal(layer(x, x, x, need_weights=False)[0], out)


def test_a_query_without_keys_gets_zeros_where_torch_has_nan() -> None:
    theirs, ours = both_layers()
    x = torch.randn(BATCH, KEYS, WIDTH).double()
    hidden = padding(7, 4, 0)
    out, weights = ours(x, x, x, key_padding_mask=hidden)
    assert bool(theirs(x, x, x, key_padding_mask=hidden)[0][2].isnan().all())
    assert torch.equal(weights[2], torch.zeros(KEYS, KEYS).double())
    assert_close(out[2], ours.out_proj.bias.expand(KEYS, WIDTH))


def test_arrays_are_masks_too() -> None:
    _, ours = both_layers()
    x, hidden = torch.randn(BATCH, KEYS, WIDTH).double(), padding(7, 4, 1)
    same(ours(x, x, x, key_padding_mask=np.asarray(hidden)), ours(x, x, x, key_padding_mask=hidden))


def test_in_torchs_encoder() -> None:
    theirs = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True, dtype=torch.float64),
        2,
        enable_nested_tensor=False,
    )
    ours = copy.deepcopy(theirs)
    for layer in ours.layers:
        layer.self_attn = MultiHeadAttention.from_torch(layer.self_attn)
    x, hidden = torch.randn(BATCH, KEYS, WIDTH).double(), padding(7, 4, 1)
    causal = nn.Transformer.generate_square_subsequent_mask(KEYS, dtype=torch.float64)
    for model in (theirs, ours):
        model.eval()
    with torch.no_grad():
        assert_close(ours(x, src_key_padding_mask=hidden), theirs(x, src_key_padding_mask=hidden))
        assert_close(ours(x, mask=causal, is_causal=True), theirs(x, mask=causal, is_causal=True))


def test_in_torchs_decoder() -> None:
    theirs = nn.TransformerDecoderLayer(WIDTH, HEADS, 32, batch_first=True, dtype=torch.float64).eval()
    ours = copy.deepcopy(theirs)
    ours.self_attn = MultiHeadAttention.from_torch(theirs.self_attn)  # type: ignore[assignment]
    ours.multihead_attn = MultiHeadAttention.from_torch(theirs.multihead_attn)  # type: ignore[assignment]
    x, memory = torch.randn(BATCH, QUERIES, WIDTH).double(), torch.randn(BATCH, KEYS, WIDTH).double()
    arguments: dict[str, Any] = {"memory_key_padding_mask": padding(7, 4, 1), "tgt_is_causal": True}
    arguments["tgt_mask"] = nn.Transformer.generate_square_subsequent_mask(QUERIES, dtype=torch.float64)
    assert_close(ours(x, memory, **arguments), theirs(x, memory, **arguments))


def test_with_a_cache() -> None:
    _, ours = both_layers()
    x, cache = torch.randn(BATCH, KEYS, WIDTH).double(), KVCache()
    whole, weights = ours(x, x, x, is_causal=True, average_attn_weights=False)
    rows = [ours(part, part, part, is_causal=True, average_attn_weights=False, cache=cache) for part in x.split(3, 1)]
    assert_close(torch.cat([out for out, _ in rows], 1), whole)
    assert_close(rows[-1][1], weights[:, :, 6:])
    sliding = KVCache(window=2, sinks=1)
    ours(x[:, :5], is_causal=True, need_weights=False, cache=sliding)
    with pytest.raises(
        ValueError, match="weights are not returned of a cache with a window or sinks; pass need_weights"
    ):
        ours(x[:, 5:], is_causal=True, cache=sliding)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize("need", [True, False])
def test_compiled(need: bool) -> None:
    _, ours = both_layers()
    x, hidden = torch.randn(BATCH, KEYS, WIDTH).double(), padding(7, 4, 1)
    compiled = torch.compile(ours, backend="eager", fullgraph=not need)
    found = compiled(x, x, x, key_padding_mask=hidden, need_weights=need)
    same(found, ours(x, x, x, key_padding_mask=hidden, need_weights=need))


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"key_padding_mask": padding(4, 2)}, ValueError, "key_padding_mask must be (batch, key) = (3, 7), got (2, 7)"),
        ({"key_padding_mask": ~padding(7, 4, 1).T}, ValueError, "key_padding_mask must be (batch, key)"),
        ({"key_padding_mask": padding(7, 4, 1).long()}, TypeError, "mask=masks.from_padding(attention_mask)"),
        ({"attn_mask": PAIRS.long()}, TypeError, "attn_mask must be bool (True = hidden) or float (added to the"),
        ({"attn_mask": PAIRS.T}, ValueError, "attn_mask must be (query, key) = (5, 7) or (batch · heads, query, key)"),
        ({"attn_mask": PER_HEAD[:4]}, ValueError, "= (12, 5, 7), got (4, 5, 7); one that broadcasts to"),
        ({"attn_mask": True}, TypeError, "attn_mask must be a torch.Tensor, got bool"),
        (
            {"attention_mask": PAIRS},
            TypeError,
            "forward() got an unexpected keyword argument 'attention_mask'; it takes",
        ),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named(arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    layer = MultiHeadAttention(WIDTH, HEADS)
    query, key = torch.randn(BATCH, QUERIES, WIDTH), torch.randn(BATCH, KEYS, WIDTH)
    with pytest.raises(kind, match=re.escape(message)):
        layer(query, key, key, **arguments)
    with pytest.raises(ValueError, match=re.escape("torch's arguments are for inputs (batch, length, width)")):
        layer(torch.randn(2, BATCH, QUERIES, WIDTH), need_weights=False)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"batch_first": False}, ValueError, "call the layer with x.transpose(0, 1) and transpose the output back"),
        ({"bias": False}, TypeError, "for biases of the projections write projection_bias=False"),
        ({"kdim": 12}, TypeError, "unexpected keyword argument 'kdim'; write d_key="),
        ({"vdim": 12}, TypeError, "'vdim'; write d_value="),
        ({"add_zero_attn": True}, TypeError, "write normalizer=normalizers.Softmax(0.0)"),
        ({"add_bias_kv": True}, TypeError, "this layer has no learned key"),
        ({"dtype": torch.float64}, TypeError, "make the layer, then convert it: .to(dtype)"),
        ({"hedas": 3}, TypeError, "'hedas'; help(regard.nn.MultiHeadAttention) lists its arguments"),
    ],
    ids=str,
)
def test_torchs_constructor_is_translated(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        MultiHeadAttention(WIDTH, HEADS, **options)
