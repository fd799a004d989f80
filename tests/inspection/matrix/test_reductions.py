"""Every reduction equals the same computed from the dense matrix of the reference engine, in float64."""

import math
from typing import Any, Literal

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import AttentionMatrix, attend, masks, matrix, normalizers
from regard.inspection.matrix.reductions import edges
from regard.spec.plane import Plane
from regard.testing import BIASES, MASKS, NORMALIZERS, SCORES, TEMPERATURES, Case, Sizes, error, mechanisms, small_tiles

CLOSE = 1e-12
CASES = [case for case in mechanisms() if not case.dropout]


class Dense:
    """A case's handle, its weights as the reference engine gives them, and which pairs are visible."""

    weights: Tensor
    aux: Any

    def __init__(self, case: Case) -> None:
        (query, key, _), spec, self.leaves = case.build()
        del spec["dropout"]
        size = case.sizes
        eye = torch.eye(size.keys, dtype=torch.float64).expand(size.batch, size.kv_heads, size.keys, size.keys)
        self.weights, self.aux = attend(
            query, key, eye, **spec, engine="reference", aux=("entropy", "peak", "peak_at", "distance")
        )
        self.handle = matrix(query, key, **spec)
        self.start = size.query_start
        start = torch.tensor([size.query_start])
        plane = Plane(size.batch, size.kv_heads, size.group, size.queries, size.keys, start)
        shape = (size.batch, size.kv_heads, size.group, size.queries, size.keys)
        seen = spec["mask"].visible(plane.all).expand(shape).flatten(1, 2)
        if case.bias == "hiding":
            seen = seen & (spec["bias"].tensor != -torch.inf)
        self.visible = seen
        rows = torch.arange(size.queries).view(-1, 1) + size.query_start
        self.away = (rows - torch.arange(size.keys)).abs().double()


def close(actual: Tensor, truth: Tensor, what: str, scale: float = 1.0) -> None:
    assert error(actual, truth) <= CLOSE * scale, what


def check(case: Case, grid: tuple[int, int] = (3, 5)) -> None:
    with torch.no_grad(), small_tiles():
        dense = Dense(case)
        a, w = dense.handle, dense.weights
        close(a.dense(), w, "dense")
        close(a.rowsum(), w.sum(-1), "rowsum")
        found = a.survey("entropy", "peak", "received", "distance", "pool", rows=grid[0], cols=grid[1])
        close(found["entropy"], dense.aux.entropy, "entropy")
        close(found["received"], w.sum(-2), "received", case.sizes.queries)
        close(found["peak"].value, w.amax(-1), "peak")
        assert torch.equal(found["peak"].key, dense.aux.peak_at)
        total = w.sum(-1)
        mean = (w * dense.away).sum(-1)
        centre = mean / torch.where(total == 0, 1.0, total)
        spread = (w * (dense.away - centre.unsqueeze(-1)).square()).sum(-1) / torch.where(total == 0, 1.0, total)
        close(found["distance"].mean, mean, "distance", 100)
        close(found["distance"].spread.square(), spread, "spread", 1000)
        check_grid(dense, found["pool"], grid)
        check_topk(dense, 4)
        close(a.mass(masks.Window(2, 0)), mass(dense, 2), "mass")
        for centered in (False, True):
            close(a.similarity(centered), similarity(dense, centered), f"similarity {centered}", 100)


def check_grid(dense: Dense, grid: Any, cells: tuple[int, int]) -> None:
    w = torch.where(dense.visible, dense.weights, 0.0)
    high, wide = w.shape[-2:]
    for a in range(cells[0]):
        for b in range(cells[1]):
            rows, columns = slice(*bounds(high, cells[0], a)), slice(*bounds(wide, cells[1], b))
            part, seen = w[..., rows, columns], dense.visible[..., rows, columns]
            count = seen.sum((-1, -2))
            assert torch.equal(grid.pairs[..., a, b], count)
            close(grid.sum[..., a, b], part.sum((-1, -2)), "sum", 10)
            close(grid.max[..., a, b], part.amax((-1, -2)), "max")
            close(grid.mean[..., a, b], part.sum((-1, -2)) / count.clamp(min=1), "mean", 10)


def bounds(count: int, cells: int, cell: int) -> tuple[int, int]:
    if cells > count:
        first = cell * count // cells
        return first, first + 1
    return int(edges(count, cells)[cell]), int(edges(count, cells)[cell + 1])


def check_topk(dense: Dense, k: int) -> None:
    found = dense.handle.topk(k)
    seen = torch.where(dense.visible, dense.weights, -1.0)
    best = seen.sort(dim=-1, descending=True, stable=True)
    width = min(k, seen.shape[-1])
    right = best.values[..., :width]
    close(found.value[..., :width], right.clamp(min=0.0), "topk")
    real = right >= 0
    assert torch.equal(found.key[..., :width] >= 0, real)
    keys = found.key[..., :width].clamp(min=0)
    again = dense.weights.gather(-1, keys)
    assert error(torch.where(real, again, 0.0), right.clamp(min=0.0)) <= CLOSE
    assert (found.key[..., width:] == -1).all()


def mass(dense: Dense, back: int) -> Tensor:
    size = dense.handle.shape
    i = torch.arange(size[-2]).view(-1, 1) + dense.start
    j = torch.arange(size[-1])
    return torch.where((i - j >= 0) & (i - j <= back), dense.weights, 0.0).sum(-1)


def similarity(dense: Dense, centered: bool) -> Tensor:
    w = dense.weights
    if centered:
        mean = w.sum(-1, keepdim=True) / dense.visible.sum(-1, keepdim=True).clamp(min=1)
        w = torch.where(dense.visible, w - mean, 0.0)
    flat = w.flatten(-2)
    size = flat.norm(dim=-1, keepdim=True)
    flat = flat / torch.where(size == 0, 1.0, size)
    return flat @ flat.mT


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_mechanism(case: Case) -> None:
    check(case)


SIZE = st.builds(
    Sizes,
    batch=st.integers(1, 2),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    queries=st.integers(1, 40),
    keys=st.integers(1, 50),
    d_key=st.integers(1, 6),
    query_start=st.integers(0, 12),
)


CASE = st.builds(
    Case,
    st.sampled_from(sorted(SCORES)),
    st.sampled_from(sorted(MASKS)),
    st.sampled_from(sorted(BIASES)),
    st.sampled_from(sorted(NORMALIZERS)),
    st.sampled_from(sorted(TEMPERATURES)),
    st.just(0.0),
    SIZE,
    st.integers(0, 1000),
)
GRID = st.tuples(st.integers(1, 60), st.integers(1, 60))


@given(CASE, GRID)
@settings(max_examples=20, suppress_health_check=list(HealthCheck), deadline=None)
def test_generated_cases(case: Case, grid: tuple[int, int]) -> None:
    check(case, grid)


@pytest.mark.slow
@given(CASE, GRID)
@settings(max_examples=400, suppress_health_check=list(HealthCheck), deadline=None)
def test_many_generated_cases(case: Case, grid: tuple[int, int]) -> None:
    check(case, grid)


def test_rows_of_a_sink_add_up_to_what_it_leaves() -> None:
    query, key = torch.randn(2, 1, 2, 9, 4, dtype=torch.float64)
    a = matrix(query, key, normalizer=normalizers.Softmax(1.5))
    close(a.rowsum(), 1 - (1.5 - a.lse()).exp(), "rowsum")


def test_pools_of_pools_are_pools() -> None:
    query, key = torch.randn(2, 1, 3, 77, 8)
    a = matrix(query, key, mask="causal")
    hows: tuple[Literal["mean", "max", "sum"], ...] = ("mean", "max", "sum")
    for how in hows:
        levels = a.pyramid(16, 32, how)
        assert [tuple(level.shape[-2:]) for level in levels] == [(16, 32), (8, 16), (4, 8), (2, 4), (1, 2), (1, 1)]
        for level in levels:
            rows, columns = level.shape[-2:]
            torch.testing.assert_close(level, a.pool(rows, columns, how), rtol=1e-6, atol=0)


def test_a_planted_spike_is_found() -> None:
    n = 100_000
    query, key = torch.randn(1, 1, 64, 16), 0.01 * torch.randn(1, 1, n, 16)
    key[0, 0, 73_211] = 4 * query[0, 0, 17] / query[0, 0, 17].norm() * 4
    a = matrix(query, key)
    peak, top, grid = a.peak(), a.topk(3), a.pool(64, 1000, "max")
    assert int(peak.key[0, 0, 17]) == 73_211 == int(top.key[0, 0, 17, 0])
    assert math.isclose(float(grid[0, 0, 17].max()), float(peak.value[0, 0, 17]), rel_tol=1e-5)
    assert int(grid[0, 0, 17].argmax()) == 73_211 * 1000 // n


def test_weights_that_exist_answer_the_same() -> None:
    query, key = torch.randn(2, 2, 3, 20, 8, dtype=torch.float64)
    a = matrix(query, key)
    b = AttentionMatrix.from_weights(a.dense().numpy())
    assert b.shape == a.shape
    for name in ("entropy", "received", "rowsum"):
        close(getattr(b, name)(), getattr(a, name)(), name, 10)
    for name in ("peak", "distance"):
        for mine, theirs in zip(getattr(b, name)(), getattr(a, name)(), strict=True):
            close(mine.double(), theirs.double(), name, 1e4)
    close(b.mass(masks.Causal()), a.mass("causal"), "mass")
    close(b.similarity(True), a.similarity(True), "similarity", 10)
    close(b.pool(3, 7), a.pool(3, 7), "pool")
    layers = AttentionMatrix.from_weights((a.dense(), a.dense()))
    assert layers.shape == (2, *a.shape)
    close(layers[1].entropy(), a.entropy(), "layer", 10)
    with pytest.raises(ValueError, match="needs queries and keys"):
        b.lse()


@pytest.mark.parametrize("mask", ["full", "causal", "lengths", "documents", "dense", "window"])
@pytest.mark.parametrize("score", ["scaled", "additive", "soft-capped"])
def test_several_segments_of_keys_and_blocks_of_queries(mask: str, score: str) -> None:
    sizes = Sizes(batch=2, kv_heads=2, group=2, queries=131, keys=601, d_key=4, query_start=400)
    check(Case(score, mask, "none", "sink", "0.7", 0.0, sizes, 3), (7, 9))


def test_a_tile_of_a_matrix_of_131072_is_the_formula() -> None:
    n, at = 131_072, 77_000
    draw = torch.Generator().manual_seed(4)
    query, key = torch.randn(2, 1, 1, n, 16, generator=draw)
    a = matrix(query, key, mask="causal")
    tile = a[0, 0, at : at + 256, at - 128 : at + 128]
    x = query[0, 0, at : at + 256].double() @ key[0, 0, : at + 256].double().mT / 4
    rows, columns = torch.arange(at, at + 256).view(-1, 1), torch.arange(at + 256)
    right = torch.where(columns <= rows, x, -torch.inf).softmax(-1)[:, at - 128 : at + 128]
    assert error(tile, right) <= 1e-6 * float(right.max())


@pytest.mark.parametrize("size", [30.0, 300.0, 3e4])
def test_large_logits_in_float32(size: float) -> None:
    """Rows are as exact as the formula in the same precision, and add up to 1."""
    draw = torch.Generator().manual_seed(5)
    query, key = torch.randn(2, 1, 2, 70, 8, generator=draw, dtype=torch.float64)
    query = (query * size).float()
    key = key.float()
    a = matrix(query, key)
    eye = torch.eye(70).expand(1, 2, 70, 70)
    plain = attend(query, key, eye, engine="reference")
    right = attend(query.double(), key.double(), eye.double(), engine="reference")
    allowed = 2 * error(plain, right) + 1e-7
    assert error(a.dense(), right) <= allowed
    assert error(a.rowsum(), torch.ones(1, 2, 70)) <= 1e-6
    assert error(a.received(), right.sum(-2)) <= 70 * allowed
    assert (
        error(a.pool(7, 7, "max"), right.unflatten(-1, (7, 10)).unflatten(-3, (7, 10)).amax((-1, -3))) <= 70 * allowed
    )
