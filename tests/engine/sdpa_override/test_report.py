"""The report: what it counts, how it reads, and docs/accelerating.md, whose Python runs."""

import doctest
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import regard
from regard.engine.sdpa_override import InterceptedCall, Report, accelerating

DOCUMENT = Path(__file__).parents[3] / "docs" / "accelerating.md"
attention: Any = scaled_dot_product_attention


def call(function: str = "f", by: str = "native", keys: int = 4, asked: str = "") -> InterceptedCall:
    return InterceptedCall(function, "Layer", (2, 3, 1, 8), (2, 3, keys, 8), "float32", asked, by)


def test_the_document_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regard, "accelerating", accelerating, raising=False)
    result = doctest.testfile(str(DOCUMENT), module_relative=False, encoding="utf-8")
    assert result.attempted > 8
    assert result.failed == 0


def test_calls_that_differ_in_sizes_share_a_line() -> None:
    report = Report()
    for keys in (9, 4, 30):
        report.served[call(keys=keys)] += 2
    report.served[call(asked="causal")] += 1
    report.left_alone[call(by="no reason")] += 1
    assert str(report).splitlines() == [
        "served: 7 calls",
        "  calls  function  layer  query         key              type     asked   engine",
        "      6  f         Layer  (2, 3, 1, 8)  (2, 3, 4…30, 8)  float32  -       native",
        "      1  f         Layer  (2, 3, 1, 8)  (2, 3, 4, 8)     float32  causal  native",
        "left alone: 1 call",
        "  calls  function  layer  query         key           type     asked  because",
        "      1  f         Layer  (2, 3, 1, 8)  (2, 3, 4, 8)  float32  -      no reason",
    ]
    assert repr(report) == "<Report: 7 calls served, 1 left alone>"


def test_a_block_without_a_call_says_what_is_not_seen() -> None:
    x = torch.randn(2, 3, 5, 4)
    with accelerating() as served:
        ((x @ x.mT).softmax(-1) @ x).sum()
    assert str(served).startswith("no call of scaled_dot_product_attention or nn.MultiheadAttention came by")
    assert repr(served) == "<Report: 0 calls served, 0 left alone>"


class Block(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return helper(x)


def helper(x: torch.Tensor) -> Any:
    return attention(x, x, x, is_causal=True)


def test_calls_say_where_they_came_from_and_what_was_asked() -> None:
    x = torch.randn(2, 3, 5, 4)
    mask = torch.zeros(5, 5)
    with accelerating("reference") as served:
        Block()(x)
        helper(x)
        attention(x, x, x, mask)
        attention(x, x, x, mask == 0, 0.25)
    assert [(one.layer, one.asked) for one in served.served] == [
        ("Block", "causal"),
        ("helper", "causal"),
        ("test_calls_say_where_they_came_from_and_what_was_asked", "bias"),
        ("test_calls_say_where_they_came_from_and_what_was_asked", "mask, dropout 0.25"),
    ]
    assert {(one.function, one.query, one.key, one.dtype, one.by) for one in served.served} == {
        ("scaled_dot_product_attention", (2, 3, 5, 4), (2, 3, 5, 4), "float32", "reference")
    }


def test_layers_say_all_that_was_asked() -> None:
    layer = nn.MultiheadAttention(8, 2, dropout=0.5, add_bias_kv=True, add_zero_attn=True)
    x = torch.randn(5, 3, 8)
    hidden = torch.zeros(3, 5, dtype=torch.bool)
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    with accelerating("reference") as served:
        layer(x, x, x, key_padding_mask=hidden, attn_mask=causal)
        layer.eval()(x, x, x, attn_mask=causal, is_causal=True, need_weights=False)
    assert [one.asked for one in served.served] == [
        "mask, padding, learned key, zero key, dropout 0.5, weights",
        "causal, learned key, zero key",
    ]
