"""The conventions, each proved once: axes, positions, chunks, parts, neutral statistics, laws that need no oracle."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import attend, biases, masks, plan, scores
from regard.engine.request import AUX
from regard.testing import Case, Sizes, error, mechanisms, small_tiles

ENGINES = ["reference", "tiled", "native"]
EPS = torch.finfo(torch.float64).eps
engines = pytest.mark.parametrize("engine", ENGINES)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(actual: Tensor, expected: Tensor, what: object = "") -> None:
    """float64 against float64: a few hundred operations in another order, each with one rounding. Fails on NaN."""
    finite = expected.detach()[expected.isfinite()]
    size = 1.0 + float(finite.abs().max() if finite.numel() else 0.0)
    assert error(actual, expected) <= 512 * EPS * size, what


def same(actual: Tensor, expected: Tensor, what: object = "") -> None:
    """The same bits and no NaN."""
    assert actual.dtype == expected.dtype, what
    assert not actual.isnan().any(), what
    assert torch.equal(actual, expected), what


# --- axes ---


@engines
@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 1, 3)])
def test_leading_axes_are_independent(leading: tuple[int, ...], engine: str) -> None:
    """(length, width), (head, …), (batch, head, …) and more: each slice is an attention of its own."""
    query, key, value = (draw(*leading, length, width, seed=length) for length, width in ((7, 5), (11, 5), (11, 4)))
    out, aux = attend(query, key, value, mask="causal", aux=AUX, engine=engine)
    assert out.shape == (*leading, 7, 4)
    for name in AUX:
        assert getattr(aux, name).shape == (*leading, 11 if name == "received" else 7), name
    for place in (
        torch.cartesian_prod(*map(torch.arange, leading)).reshape(-1, len(leading)).tolist() if leading else [()]
    ):
        at = tuple(place)
        alone, more = attend(query[at], key[at], value[at], mask="causal", aux=AUX, engine=engine)
        close(out[at], alone, at)
        for name in AUX:
            close(getattr(aux, name)[at], getattr(more, name), name)


@engines
def test_grouped_heads_are_repeated_heads(engine: str) -> None:
    query = draw(2, 6, 7, 5)
    key, value = draw(2, 2, 11, 5, seed=1), draw(2, 2, 11, 4, seed=2)
    spec: dict[str, Any] = {"mask": "causal", "bias": biases.ALiBi(6), "engine": engine}
    repeated = (tensor.repeat_interleave(3, 1) for tensor in (key, value))
    with small_tiles():
        close(attend(query, key, value, **spec), attend(query, *repeated, **spec))


@engines
def test_leading_axes_broadcast(engine: str) -> None:
    query, key, value = draw(3, 1, 4, 7, 5), draw(1, 2, 2, 11, 5, seed=1), draw(2, 2, 11, 4, seed=2)
    wide = [tensor.expand(3, 2, *tensor.shape[-3:]).flatten(0, 1) for tensor in (query, key, value)]
    for shape in ((7, 11), (1, 11), (4, 7, 1), (2, 1, 7, 11), (3, 1, 1, 7, 11), (3, 2, 4, 7, 11)):
        table = draw(*shape, seed=3)
        specs: list[dict[str, Any]] = [{"bias": table}, {"mask": table < 0.5}]
        for spec in specs:
            found = attend(query, key, value, **spec, engine=engine)
            assert found.shape == (3, 2, 4, 7, 4)
            folded = {name: tensor.expand(3, 2, 4, 7, 11).flatten(0, 1) for name, tensor in spec.items()}
            close(found.flatten(0, 1), attend(*wide, **folded, engine=engine), (spec, shape))


# --- positions ---


@engines
def test_the_last_query_stands_at_the_last_key(engine: str) -> None:
    query, key, value = draw(1, 2, 11, 5), draw(1, 2, 11, 5, seed=1), draw(1, 2, 11, 4, seed=2)
    whole = attend(query, key, value, mask="causal", engine=engine)
    close(whole, attend(query, key, value, mask="causal", query_start=0, engine=engine))
    for count in (1, 4, 10):
        close(attend(query[:, :, -count:], key, value, mask="causal", engine=engine), whole[:, :, -count:], count)


@engines
@pytest.mark.parametrize("start", [-30, -3, 0, 2, 40])
def test_a_start_moves_all_queries(start: int, engine: str) -> None:
    query, key, value = draw(1, 2, 5, 5), draw(1, 2, 11, 5, seed=1), draw(1, 2, 11, 4, seed=2)
    seen = (torch.arange(11) <= torch.arange(5).view(-1, 1) + start).expand(5, 11)
    offset = (torch.arange(5).view(-1, 1) + start - torch.arange(11)).abs()
    slopes = torch.tensor([2.0**-4, 2.0**-8], dtype=torch.float64).view(2, 1, 1)
    with small_tiles():
        found, aux = attend(
            query, key, value, mask="causal", bias=biases.ALiBi(2), query_start=start, aux="distance", engine=engine
        )
        right = attend(query, key, value, mask=seen, bias=-slopes * offset, query_start=0, engine=engine)
    close(found, right)
    if start < -5:
        assert (found == 0).all()
        assert torch.equal(torch.as_tensor(aux.distance), torch.zeros_like(found[..., 0]))


@engines
def test_one_start_per_batch_row_is_a_loop_over_rows(engine: str) -> None:
    case = Case(score="transformer-xl", mask="combined", bias="t5", sizes=Sizes(batch=3))
    (query, key, value), spec, _ = case.build()
    starts = torch.tensor([4, -2, 0])
    with small_tiles():
        found, aux = attend(query, key, value, **{**spec, "query_start": starts}, aux=AUX, engine=engine)
        for row, start in enumerate(starts.tolist()):
            inputs = (tensor[row : row + 1] for tensor in (query, key, value))
            right, more = attend(*inputs, **{**spec, "query_start": start}, aux=AUX, engine=engine)
            close(found[row : row + 1], right, row)
            for name in AUX:
                close(getattr(aux, name)[row : row + 1], getattr(more, name), (row, name))


LOOKING: dict[str, dict[str, Any]] = {
    "causal": {"mask": "causal"},
    "window": {"mask": masks.Full() & masks.Window(3, None)},
    "alibi": {"bias": biases.ALiBi(2)},
    "distance": {"bias": biases.Dense(torch.zeros(1, 1)) + biases.Distance(torch.zeros(3))},
    "relative": {"score": scores.SoftCapped(scores.Relative(torch.zeros(3, 5)), 5.0)},
    "modified": {"score": scores.Modified(scores.Dot(), lambda s, b, h, i, j: s)},
    "statistics": {"aux": ("distance",)},
}
NOT_LOOKING: dict[str, dict[str, Any]] = {
    "plain": {},
    "prefix": {"mask": masks.Prefix(2)},
    "open window": {"mask": masks.Window(None, None)},
    "dense": {"mask": torch.ones(1, 1, dtype=torch.bool), "bias": torch.zeros(1, 1)},
    "statistics": {"aux": tuple(name for name in AUX if name != "distance")},
}


@engines
@pytest.mark.parametrize(("queries", "keys", "ragged"), [(9, 7, False), (5, 7, True)])
def test_an_ambiguous_start_raises_only_where_positions_matter(
    queries: int, keys: int, ragged: bool, engine: str
) -> None:
    inputs = draw(2, 2, queries, 5), draw(2, 2, keys, 5), draw(2, 2, keys, 4)
    lengths = masks.Lengths(torch.tensor([keys, 3]))
    why = "the keys have Lengths" if ragged else "more queries than keys"
    for name, spec in LOOKING.items():
        mask = spec.get("mask")
        mask = masks.Causal() if mask == "causal" else mask
        full = {**spec, "mask": mask & lengths if mask is not None else lengths} if ragged else spec
        with pytest.raises(
            ValueError, match=f"query_start is ambiguous: {queries} queries, {keys} keys.*{why}.*query_start=0"
        ):
            attend(*inputs, **full, engine=engine)
        attend(*inputs, **full, query_start=0, engine=engine)
        assert name
    for spec in NOT_LOOKING.values():
        mask = spec.get("mask")
        attend(*inputs, **{**spec, "mask": lengths} if ragged and not isinstance(mask, Tensor) else spec, engine=engine)


# --- chunks ---


def fits_any_rows(case: Case) -> bool:
    """Whether no part of the spec has one entry per query row."""
    return case.mask not in ("documents", "packed", "dense") and case.bias not in ("dense", "hiding")


@engines
@pytest.mark.parametrize("case", [case for case in mechanisms() if fits_any_rows(case)], ids=str)
def test_chunks_of_queries_are_the_whole(case: Case, engine: str) -> None:
    (query, key, value), spec, _ = case.build()
    start = spec.pop("query_start")
    names = ("entropy", "peak", "peak_at", "distance", "max_logit")
    with small_tiles():
        whole, aux = attend(query, key, value, **spec, query_start=start, aux=names, engine=engine)
        for first, last in ((0, 1), (1, 7), (7, 11)):
            rows = slice(first, last)
            part, more = attend(
                query[:, :, rows], key, value, **spec, query_start=start + first, aux=names, engine=engine
            )
            close(part, whole[:, :, rows])
            for name in names:
                close(getattr(more, name), getattr(aux, name)[:, :, rows], name)


# --- asking for more, asking again ---


def run(case: Case, engine: str, aux: tuple[str, ...]) -> tuple[Tensor, ...]:
    """Output and gradients in float32."""
    inputs, spec, leaves = case.build(torch.float32)
    with small_tiles():
        out = attend(*inputs, **spec, aux=aux, engine=engine)[0] if aux else attend(*inputs, **spec, engine=engine)
        return (out, *torch.autograd.grad(out.square().sum(), list(leaves.values()), materialize_grads=True))


@engines
@pytest.mark.parametrize("case", mechanisms(), ids=str)
def test_statistics_change_no_bit(case: Case, engine: str) -> None:
    plain = run(case, engine, ())
    names = AUX if case.normalizer in ("softmax", "sink", "zero sink") else AUX[1:]
    for aux in (names, *((name,) for name in (names if case == Case() else ()))):
        for found, right in zip(run(case, engine, aux), plain, strict=True):
            same(found, right, aux)


@engines
@pytest.mark.parametrize("case", [Case(), Case(mask="packed", dropout=0.3), Case(normalizer="sparsemax")], ids=str)
def test_every_run_gives_the_same_bits(case: Case, engine: str) -> None:
    first = run(case, engine, ())
    for _ in range(3):
        for found, right in zip(run(case, engine, ()), first, strict=True):
            same(found, right)


@engines
def test_no_mask_is_the_full_mask(engine: str) -> None:
    (query, key, value), spec, leaves = Case(bias="alibi", normalizer="sink", dropout=0.3).build(torch.float32)
    results = []
    for mask in (None, masks.Full()):
        with small_tiles():
            out, aux = attend(query, key, value, **{**spec, "mask": mask}, aux=AUX, engine=engine)
            grads = torch.autograd.grad(out.square().sum(), list(leaves.values()))
        results.append((out, *(getattr(aux, name) for name in AUX), *grads))
    for without, full in zip(*results, strict=True):
        same(without, full)
    plans = [plan(query, key, value, **{**spec, "mask": mask}, engine=engine) for mask in (None, masks.Full())]
    assert plans[0] == plans[1]


# --- engines ---


def test_an_engine_asked_for_by_name_runs_or_raises() -> None:
    query = torch.randn(1, 2, 5, 4)
    with pytest.raises(ValueError, match=r"engine 'sdpa' cannot do this: torch .* not Cosine\(\)"):
        attend(query, query, query, score=scores.Cosine(), engine="sdpa")
    for name in ("reference", "tiled", "native", "sdpa"):
        assert plan(query, query, query, engine=name).engine == name


def test_the_environment_chooses_for_auto_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    query = torch.randn(1, 2, 5, 4)
    monkeypatch.delenv("REGARD_ENGINE", raising=False)
    assert plan(query, query, query).engine == "native"
    monkeypatch.setenv("REGARD_ENGINE", "reference")
    assert plan(query, query, query).engine == "reference"
    assert plan(query, query, query, engine="tiled").engine == "tiled"
    same(attend(query, query, query), attend(query, query, query, engine="reference"))
    monkeypatch.setenv("REGARD_ENGINE", "sdpa")
    with pytest.raises(ValueError, match="engine 'sdpa' cannot do this"):
        attend(query, query, query, score=scores.Cosine())
    monkeypatch.setenv("REGARD_ENGINE", "warp")
    with pytest.raises(
        ValueError, match="REGARD_ENGINE must be 'auto' or one of native, tiled, sdpa, flex, reference, got 'warp'"
    ):
        attend(query, query, query)


def test_the_comparisons_can_fail() -> None:
    one, nan = torch.ones(3, dtype=torch.float64), torch.full((3,), torch.nan, dtype=torch.float64)
    for check in (close, same):
        for wrong in (nan, one + 1e-9, torch.full_like(one, torch.inf)):
            with pytest.raises(AssertionError):
                check(wrong, one)
        with pytest.raises(AssertionError):
            check(nan, nan)


def test_the_page_of_conventions_names_tests_that_exist() -> None:
    here = Path(__file__).parent
    page = (here.parents[1] / "docs" / "conventions.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", page)
    assert len(named) > 30
    for file, name in named:
        assert f"def {name}(" in (here / file).read_text(encoding="utf-8"), f"{file} has no {name}"
