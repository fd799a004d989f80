"""The head pass against sums over the weights of the second pass, and its bits on any number of threads."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import biases, masks, normalizers, scores
from regard.engine.native.second_pass import native_row_states
from regard.engine.request import request
from regard.engine.second_pass import KeyKind, SecondPass
from regard.inspection.matrix.handle import DEFAULTS

BATCH, QUERIES, KEYS = 2, 230, 530  # two parts of queries, three segments, and rests of every step


def given(heads: int, kv_heads: int, dtype: torch.dtype, spec: dict[str, Any]) -> tuple[SecondPass, Tensor]:
    """A second pass and all its weights, (batch, head, query, key)."""
    draw = torch.Generator().manual_seed(heads)
    query = torch.randn(BATCH, heads, QUERIES, 16, generator=draw).to(dtype)
    key = torch.randn(BATCH, kv_heads, KEYS, 16, generator=draw).to(dtype)
    rows = native_row_states(request(query, key, key[..., :0], **DEFAULTS | spec, dropout=0.0, aux=()))
    assert rows is not None
    assert rows.kernel is not None
    assert rows.kernel.compares_heads()
    return rows.kernel, rows.kernel.tile(slice(0, QUERIES), slice(0, KEYS)).clamp(min=0.0)


def kinds() -> Iterator[tuple[KeyKind, Tensor]]:
    """Kinds of keys, and their pairs as (batch, query, key) bools."""
    draw = torch.Generator().manual_seed(1)
    place = torch.arange(QUERIES) + KEYS - QUERIES
    columns = torch.arange(KEYS)
    for rows, excluded in ((1, None), (BATCH, 0), (1, 1)):
        keys = torch.randint(-1, 7, (rows, KEYS), generator=draw)
        queries = torch.randint(-1, 7, (BATCH, QUERIES), generator=draw)
        pairs = (queries.unsqueeze(-1) == keys.unsqueeze(1)) & (queries.unsqueeze(-1) >= 0)
        if excluded is not None:
            pairs &= columns != place.view(-1, 1) + excluded
        yield KeyKind(keys, queries, excluded), pairs
    yield KeyKind(columns.unsqueeze(0), place.unsqueeze(0)), (columns == place.view(-1, 1)).expand(BATCH, -1, -1)


def by_head() -> Tensor:
    """A mask for each of four heads, in which some rows see nothing."""
    seen = torch.rand(BATCH, 4, QUERIES, KEYS, generator=torch.Generator().manual_seed(2)) < 0.3
    seen[:, 1:3, 40:90] = False
    return seen


def additive() -> scores.Additive:
    """Four hidden units."""
    draw = torch.Generator().manual_seed(3)
    return scores.Additive(*(torch.randn(size, generator=draw) for size in ((4, 16), (4, 16), (4,))))


CASES: dict[str, tuple[int, int, torch.dtype, dict[str, Any]]] = {
    "all pairs": (3, 3, torch.float32, {}),
    "causal, groups of three": (9, 3, torch.float32, {"mask": masks.Causal()}),
    "window, five heads over one": (5, 1, torch.float64, {"mask": masks.Window(40, 3), "bias": biases.ALiBi(5)}),
    "a mask for each head": (4, 2, torch.float32, {"mask": masks.Dense(by_head())}),
    "bfloat16 with a sink": (
        6,
        2,
        torch.bfloat16,
        {"mask": masks.Causal(), "normalizer": normalizers.Softmax(sink=torch.ones(6))},
    ),
    "one head, an additive score": (1, 1, torch.float32, {"score": additive()}),
}


@pytest.mark.parametrize("case", CASES)
def test_sums_over_heads(case: str) -> None:
    second, weights = given(*CASES[case])
    counted = torch.ones((BATCH, 1, QUERIES), dtype=torch.bool)
    counted[0, 0, 50:70] = False
    names, pairs = zip(*kinds(), strict=True)
    shares, products = second.head_sums(names, counted, products=True)
    exact = (weights * counted.unsqueeze(-1)).double()
    for found, mark in zip(shares, pairs, strict=True):
        wanted = (exact * mark.unsqueeze(1)).sum(-1)
        assert wanted.any()
        assert (found - wanted).abs().le(KEYS * torch.finfo(torch.float64).eps * wanted).all()
    flat = exact.flatten(2)
    wanted = flat @ flat.mT
    # the pairs of a step, 12 queries × 256 keys, are added in the precision of the weights, in at least 2 lanes
    roundings = 12 * 256 / 2 + 2
    assert (products - wanted).abs().le(roundings * torch.finfo(weights.dtype).eps * wanted).all()


@pytest.mark.parametrize("case", CASES)
def test_weights_of_some_rows_are_those_of_tiles(case: str) -> None:
    second, weights = given(*CASES[case])
    counted = torch.ones((BATCH, 1, QUERIES), dtype=torch.bool)
    counted[1, 0, 7] = False
    rows, columns = torch.tensor([0, 1, 7, *range(30, 229, 2), 229]), slice(17, 520)
    size = (BATCH, weights.shape[1] + 2, len(rows), columns.stop - columns.start)
    wide = torch.full(size, torch.nan, dtype=weights.dtype)
    second.some_rows(rows, columns, counted, wide[:, 1:-1])
    weights = weights * counted.unsqueeze(-1)
    assert torch.equal(wide[:, 1:-1], weights[:, :, rows][..., columns])
    assert wide[:, [0, -1]].isnan().all()


def test_bits_do_not_depend_on_threads() -> None:
    second, _ = given(*CASES["causal, groups of three"])
    counted = torch.ones((BATCH, 1, QUERIES), dtype=torch.bool)
    names = [kind for kind, _ in kinds()]
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(second.head_sums(names, counted, products=True))
    finally:
        torch.set_num_threads(before)
    for shares, products in results[1:]:
        assert torch.equal(shares, results[0][0])
        assert torch.equal(products, results[0][1])
