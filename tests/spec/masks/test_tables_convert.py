"""Masks from torch's and transformers' conventions: real modules agree, and wrong tensors are told what to do."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

import regard
from regard.spec import masks
from regard.spec.masks import Mask, from_mha, from_padding, from_sdpa

BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 3, 5, 7, 11


def draw(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def hidden(*size: int, seed: int = 1) -> Tensor:
    """True hides about half the pairs; the first key of every row stays, so that no softmax is empty."""
    table = torch.rand(*size, generator=torch.Generator().manual_seed(seed)) < 0.5
    table[..., 0] = False
    return table


def agree(ours: Tensor, theirs: Tensor) -> None:
    assert bool(theirs.isfinite().all())
    # both are float64 sums of fewer than 64 terms of size 1
    torch.testing.assert_close(ours, theirs, atol=64 * torch.finfo(torch.float64).eps, rtol=0)


@pytest.mark.parametrize(
    "size",
    [(QUERIES, KEYS), (1, KEYS), (QUERIES, 1), (HEADS, 1, KEYS), (BATCH, 1, 1, KEYS), (BATCH, HEADS, QUERIES, KEYS)],
)
def test_from_sdpa(size: tuple[int, ...]) -> None:
    q, k, v = draw(BATCH, HEADS, QUERIES, WIDTH), *draw(2, BATCH, HEADS, KEYS, WIDTH, seed=3)
    visible = ~hidden(*size)
    theirs = scaled_dot_product_attention(q, k, v, attn_mask=visible)
    agree(regard.attend(q, k, v, mask=from_sdpa(visible), engine="reference"), theirs)


class ByHand:
    """`nn.MultiheadAttention` with the attention in the middle computed by regard."""

    def __init__(self, module: nn.MultiheadAttention) -> None:
        self.module = module

    def __call__(self, query: Tensor, key: Tensor, mask: Mask) -> Tensor:
        weights = self.module.in_proj_weight.chunk(3)
        biases = self.module.in_proj_bias.chunk(3)
        heads = [
            linear(x, w, b).unflatten(-1, (HEADS, -1)).transpose(-2, -3)
            for x, w, b in zip((query, key, key), weights, biases, strict=True)
        ]
        out = regard.attend(heads[0], heads[1], heads[2], mask=mask, engine="reference")
        assert isinstance(out, Tensor)
        return linear(out.transpose(-2, -3).flatten(-2), self.module.out_proj.weight, self.module.out_proj.bias)


@pytest.fixture
def module() -> nn.MultiheadAttention:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(HEADS * WIDTH, HEADS, batch_first=True, dtype=torch.float64)
    nn.init.normal_(module.in_proj_bias)
    return module


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    "attn, padding",
    [
        ((QUERIES, KEYS), None),
        ((BATCH * HEADS, QUERIES, KEYS), None),
        (None, (BATCH, KEYS)),
        ((QUERIES, KEYS), (BATCH, KEYS)),
        ((BATCH * HEADS, QUERIES, KEYS), (BATCH, KEYS)),
        (None, None),
    ],
)
def test_from_mha(
    module: nn.MultiheadAttention,
    attn: tuple[int, ...] | None,
    padding: tuple[int, int] | None,
    need_weights: bool,
) -> None:
    query, key = draw(BATCH, QUERIES, HEADS * WIDTH), draw(BATCH, KEYS, HEADS * WIDTH, seed=3)
    attn_mask = None if attn is None else hidden(*attn)
    key_padding_mask = None if padding is None else hidden(*padding, seed=2)
    theirs, weights = module(
        query, key, key, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=need_weights
    )
    mask = from_mha(attn_mask, key_padding_mask, heads=HEADS)
    agree(ByHand(module)(query, key, mask), theirs)
    if need_weights:
        visible = torch.zeros(BATCH, HEADS, QUERIES, KEYS, dtype=torch.bool)
        plane = regard.spec.plane.Plane(BATCH, HEADS, 1, QUERIES, KEYS, torch.tensor([0]))
        visible |= mask.visible(plane.all).expand(BATCH, HEADS, 1, QUERIES, KEYS).flatten(1, 2)
        assert torch.equal(weights > 0, visible.any(1)), "averaged over heads: seen by any of them"


@pytest.mark.parametrize("heads", [HEADS, None])
def test_from_mha_without_a_batch(module: nn.MultiheadAttention, heads: int | None) -> None:
    query, key = draw(QUERIES, HEADS * WIDTH), draw(KEYS, HEADS * WIDTH, seed=3)
    attn_mask, padding = hidden(QUERIES, KEYS), hidden(KEYS, seed=2)
    if heads is not None:
        attn_mask = hidden(heads, QUERIES, KEYS)
    theirs, _ = module(query, key, key, attn_mask=attn_mask, key_padding_mask=padding)
    agree(ByHand(module)(query, key, from_mha(attn_mask, padding, heads=heads)), theirs)


def test_from_mha_of_nothing_hides_nothing() -> None:
    assert from_mha() == masks.Full()
    assert from_mha(key_padding_mask=torch.tensor([False, True])) == masks.Dense(torch.tensor([True, False]))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool, torch.float32])
def test_from_padding(dtype: torch.dtype) -> None:
    """Left, right and any other padding: 1 is a token."""
    tokens = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0], [1, 0, 1, 0, 1, 0, 1]]).to(dtype)
    q, k, v = draw(3, HEADS, QUERIES, WIDTH), *draw(2, 3, HEADS, KEYS, WIDTH, seed=3)
    theirs = scaled_dot_product_attention(q, k, v, attn_mask=tokens.bool()[:, None, None, :])
    agree(regard.attend(q, k, v, mask=from_padding(tokens), engine="reference"), theirs)
    assert from_padding(tokens[1]) == masks.Dense(tokens[1].bool())


def test_torch_and_transformers_mean_opposite_things() -> None:
    tokens = torch.tensor([[1, 1, 0]])
    assert from_padding(tokens) == from_mha(key_padding_mask=tokens == 0) == from_sdpa(tokens.bool()[:, None, None])


@pytest.mark.parametrize(
    "make, error, text",
    [
        (
            lambda: from_sdpa(torch.zeros(3, 5)),
            TypeError,
            "attn_mask must be bool, got float32; a float mask is added to the logits: pass it as bias=",
        ),
        (
            lambda: from_sdpa(None),  # type: ignore[arg-type]
            TypeError,
            "attn_mask must be a torch.Tensor, got NoneType",
        ),
        (
            lambda: from_mha(torch.zeros(3, 5, dtype=torch.uint8)),
            TypeError,
            "attn_mask must be bool, got uint8; compare it with 0",
        ),
        (
            lambda: from_mha(key_padding_mask=torch.zeros(3, 5)),
            TypeError,
            "key_padding_mask must be bool, got float32; a float mask is added to the logits: pass it as bias=",
        ),
        (
            lambda: from_mha(hidden(6, 5, 7)),
            ValueError,
            "an attn_mask of shape (6, 5, 7) is (batch · heads, query, key); pass heads= so that it can be split, "
            "got None",
        ),
        (lambda: from_mha(hidden(6, 5, 7), heads=4), ValueError, "pass heads= so that it can be split, got 4"),
        (lambda: from_mha(hidden(6, 5, 7), heads=0), ValueError, "heads must be at least 1, got 0"),
        (
            lambda: from_mha(hidden(2, 3, 5, 7)),
            ValueError,
            "attn_mask must be (query, key) or (batch · heads, query, key), got shape (2, 3, 5, 7); "
            "one that broadcasts is masks.Dense(~attn_mask)",
        ),
        (
            lambda: from_mha(key_padding_mask=hidden(2, 1, 5)),
            ValueError,
            "key_padding_mask must be (batch, key) or (key,), got shape (2, 1, 5); one with query and head axes is "
            "masks.from_sdpa(tensor), or a bias if it is added to the logits",
        ),
        (
            lambda: from_padding(torch.tensor([[0.0, -1e9]])),
            ValueError,
            "attention_mask must hold 0 and 1 only, got values from -1000000000.0 to 0.0; "
            "a mask that is added to the logits is a bias: biases.Dense(tensor)",
        ),
        (
            lambda: from_padding(torch.ones(2, 1, 5, 5)),
            ValueError,
            "attention_mask must be (batch, key) or (key,), got shape (2, 1, 5, 5)",
        ),
        (
            lambda: from_padding([1, 0]),  # type: ignore[arg-type]
            TypeError,
            "attention_mask must be a torch.Tensor, got list",
        ),
    ],
)
def test_wrong_arguments(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        make()
