"""plan tells the truth: its signature is attend's, its counts are those of torch's counters and of the allocator."""

import inspect
import re
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard import Dropout, attend, biases, masks, normalizers, plan, scores
from regard.engine.memory import MemoryCounter
from regard.engine.native.library import library
from regard.engine.request import AUX
from regard.spec.masks.count import visible_pairs
from regard.spec.plane import Plane
from regard.testing import (
    BIASES,
    MASKS,
    NORMALIZERS,
    PRODUCTS,
    SCORES,
    TEMPERATURES,
    Case,
    Sizes,
    allocations,
    mechanisms,
    peak_bytes,
    small_tiles,
)

SOFTMAX = ("softmax", "sink", "zero sink")
PAGE = 4096  # bytes; below that nobody asks how exact a plan is


def test_it_takes_exactly_the_arguments_of_attend() -> None:
    theirs, ours = (inspect.signature(function).parameters for function in (attend, plan))
    assert [*theirs][-1] == "unknown"  # which gets torch's names, to refuse them
    assert list(ours) == [*[*theirs][:-1], "world", "layout", "bandwidth", "flops", "unknown"]
    for name, parameter in theirs.items():
        assert (ours[name].kind, ours[name].annotation) == (parameter.kind, parameter.annotation)
        assert ours[name].default == parameter.default or parameter.default is parameter.empty is ours[name].default


def flops(case: Case, engine: str, aux: tuple[str, ...] = ()) -> tuple[int, int]:
    """(planned, counted by torch)."""
    inputs, spec, _ = case.build()
    with small_tiles(), torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            attend(*inputs, **spec, aux=aux, engine=engine)
        return plan(*inputs, **spec, aux=aux, engine=engine).flops, int(counter.get_total_flops())


@pytest.mark.parametrize("engine", ["tiled", "reference"])
@pytest.mark.parametrize("mask", ["full", "causal", "window", "packed", "combined", "where", "nothing"])
@pytest.mark.parametrize("score", SCORES)
def test_flops_are_torchs_own_count(score: str, mask: str, engine: str) -> None:
    planned, counted = flops(Case(score=score, mask=mask), engine)
    assert planned == counted


@pytest.mark.parametrize("case", mechanisms(), ids=str)
def test_flops_of_every_mechanism(case: Case) -> None:
    planned, counted = flops(case, "tiled", ("received", "peak"))
    assert planned == counted


sizes = st.builds(
    Sizes,
    batch=st.integers(1, 3),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 2),
    queries=st.integers(1, 700),
    keys=st.integers(1, 700),
    d_key=st.integers(1, 40),
    d_value=st.integers(1, 40),
    query_start=st.integers(0, 5),
)
cases = st.builds(
    Case,
    score=st.sampled_from(sorted(SCORES)),
    mask=st.sampled_from(sorted(MASKS)),
    bias=st.sampled_from(sorted(BIASES)),
    normalizer=st.sampled_from(sorted(NORMALIZERS)),
    temperature=st.sampled_from(sorted(TEMPERATURES)),
    dropout=st.sampled_from([0.0, 0.4]),
    sizes=sizes,
    seed=st.integers(0, 2**31),
)


def truth(case: Case, engine: str, dtype: torch.dtype, trained: bool, aux: tuple[str, ...]) -> None:
    """Work, pairs and memory of a plan against the call itself."""
    aux = tuple(name for name in aux if name != "lse" or case.normalizer in SOFTMAX)
    inputs, spec, _ = case.build(dtype)
    with torch.set_grad_enabled(trained):
        found = plan(*inputs, **spec, aux=aux, engine=engine)
        with FlopCounterMode(display=False) as counter:
            results: Any = attend(*inputs, **spec, aux=aux, engine=engine)
        most, _ = peak_bytes(lambda: attend(*inputs, **spec, aux=aux, engine=engine))
    assert found.flops == counter.get_total_flops()
    outputs = [results] if not aux else [results[0], *(getattr(results[1], name) for name in aux)]
    measured = most - sum(tensor.nbytes for tensor in outputs)
    assert found.bytes is not None
    assert measured <= found.bytes <= max(2 * measured, PAGE), (measured, found.bytes)
    size = case.sizes
    plane = Plane(size.batch, size.kv_heads, size.group, size.queries, size.keys, torch.tensor([size.query_start]))
    lanes = (size.batch, size.kv_heads, size.group, size.queries, size.keys)
    assert found.visible_exact
    assert found.visible_pairs == int(spec["mask"].visible(plane.all).expand(lanes).sum())
    assert found.visible_pairs <= found.computed_pairs <= found.all_pairs == torch.Size(lanes).numel()


options = {
    "dtype": st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    "trained": st.booleans(),
    "aux": st.lists(st.sampled_from(AUX), unique=True, max_size=4).map(tuple),
}


@given(case=cases, **options)
@settings(max_examples=60)
def test_generated_plans_are_true(case: Case, dtype: torch.dtype, trained: bool, aux: tuple[str, ...]) -> None:
    truth(case, "tiled", dtype, trained, aux)


@given(case=cases, **options)
@settings(max_examples=20)
def test_generated_plans_of_the_reference_are_true(
    case: Case, dtype: torch.dtype, trained: bool, aux: tuple[str, ...]
) -> None:
    smaller = replace(case.sizes, queries=1 + case.sizes.queries // 4, keys=1 + case.sizes.keys // 3)
    truth(replace(case, sizes=smaller), "reference", dtype, trained, aux)


def held_natively(case: Case, dtype: torch.dtype, aux: tuple[str, ...]) -> int:
    """Bytes beyond inputs and outputs: torch's, and the workspace of a thread that makes this call only."""
    inputs, spec, _ = case.build(dtype)
    found: list[int] = []

    def call() -> None:
        with torch.no_grad(), MemoryCounter() as memory:
            out, more = attend(*inputs, **spec, aux=aux, engine="native")
        outputs = [out, *(getattr(more, name) for name in aux)]
        core = library()
        assert core is not None
        found.append(memory.peak - sum(tensor.nbytes for tensor in outputs) + core.regard_workspace())

    thread = Thread(target=call)
    thread.start()
    thread.join()
    return found[0]


products = st.builds(replace, cases, score=st.sampled_from(PRODUCTS), normalizer=st.sampled_from(SOFTMAX))


@given(case=products, dtype=options["dtype"])
@settings(max_examples=40)
def test_generated_plans_of_native_are_true(case: Case, dtype: torch.dtype) -> None:
    inputs, spec, _ = case.build(dtype)
    aux = ("lse", "entropy")
    with torch.no_grad():
        found = plan(*inputs, **spec, aux=aux, engine="native")
    measured = held_natively(case, dtype, aux)
    assert found.bytes is not None
    assert 0.5 * measured <= found.bytes <= max(2 * measured, PAGE), (measured, found.bytes)
    assert found.visible_pairs <= found.computed_pairs


@pytest.mark.parametrize("score", ["dot", "general", "general per head", "additive", "mlp gelu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [1, 40])
def test_the_workspace_of_a_projection_is_planned(score: str, dtype: torch.dtype, width: int) -> None:
    """Of queries and keys times a matrix: for a single pair it takes more than the attention, in two precisions."""
    one = Sizes(batch=1, kv_heads=1, group=1, queries=1, keys=1, d_key=width, d_value=1, query_start=0)
    case = Case(score=score, sizes=one)
    inputs, spec, _ = case.build(dtype)
    with torch.no_grad():
        found = plan(*inputs, **spec, aux=("lse", "entropy"), engine="native").bytes
    measured = held_natively(case, dtype, ("lse", "entropy"))
    assert found is not None
    assert 0.99 * measured <= found <= 1.25 * measured, (measured, found)


@pytest.mark.slow
@given(case=cases, **options)
@settings(max_examples=1000)
def test_many_generated_plans_are_true(case: Case, dtype: torch.dtype, trained: bool, aux: tuple[str, ...]) -> None:
    truth(case, "tiled", dtype, trained, aux)


@pytest.mark.parametrize("case", mechanisms(), ids=str)
def test_bytes_of_every_mechanism(case: Case) -> None:
    long = Sizes(batch=1, kv_heads=1, group=2, queries=600, keys=1100, d_key=16, d_value=8, query_start=500)
    truth(replace(case, sizes=long), "tiled", torch.float32, False, ("entropy",))


@pytest.mark.parametrize("normalizer", ["hard", "sparsemax"])
def test_a_strip_holds_its_results_while_the_tiles_are_made(normalizer: str) -> None:
    """A score that takes much more than its logits, and results that take more than a tile."""
    few = Sizes(batch=3, kv_heads=2, group=2, queries=20, keys=3, d_key=1, d_value=2, query_start=1)
    case = Case(score="mlp sigmoid", mask="prefix", bias="shared distance", normalizer=normalizer, sizes=few)
    truth(case, "tiled", torch.bfloat16, False, ("entropy", "peak", "peak_at", "distance"))


@pytest.mark.parametrize("normalizer", ["hard", "sparsemax"])
def test_making_the_results_takes_more_than_they_hold(normalizer: str) -> None:
    """Where no key is seen, nothing else takes as much."""
    rows = Sizes(batch=3, kv_heads=1, group=1, queries=400, keys=1, d_key=1, d_value=1, query_start=0)
    truth(Case(mask="nothing", normalizer=normalizer, sizes=rows), "tiled", torch.float32, False, ())


def test_training_holds_the_statistics_without_the_sink() -> None:
    rows = Sizes(batch=1, kv_heads=1, group=1, queries=4000, keys=1, d_key=1, d_value=1, query_start=0)
    case = Case(mask="nothing", normalizer="sink", sizes=rows)
    truth(case, "tiled", torch.bfloat16, True, ("lse", "entropy", "peak", "distance"))


@pytest.mark.parametrize("aux", [("received",), ("distance", "received", "entropy")], ids=str)
def test_the_outputs_without_the_sink_are_not_held_while_keys_are_summed(aux: tuple[str, ...]) -> None:
    wide = Sizes(batch=2, kv_heads=2, group=2, queries=543, keys=93, d_key=23, d_value=35, query_start=5)
    case = Case(score="mlp tanh", mask="dilated", normalizer="sink", sizes=wide)
    truth(case, "tiled", torch.float32, False, aux)


@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax"])
def test_the_dense_engine_is_weighed_by_its_first_rows(normalizer: str) -> None:
    """More pairs than are weighed: the rest of the rows is a straight line."""
    large = Sizes(batch=1, kv_heads=2, group=1, queries=900, keys=1200, d_key=16, d_value=8, query_start=0)
    truth(Case(normalizer=normalizer, sizes=large), "reference", torch.float32, False, ())


def test_a_plan_holds_little_itself() -> None:
    """Linear memory, even for what would hold a square, or very wide rows."""
    q, k, v = torch.zeros(3, 1, 2, 8192, 4)
    for spec in ({"engine": "reference"}, {"normalizer": normalizers.Sparsemax()}, {"mask": "causal"}):
        sizes_ = allocations(lambda spec=spec: plan(q, k, v, **spec))  # type: ignore[misc]
        assert max(sizes_) < 8192**2 // 4
        assert peak_bytes(lambda spec=spec: plan(q, k, v, **spec))[0] < 64 << 20  # type: ignore[misc]


@pytest.mark.parametrize("dropout", [0.0, 0.5, Dropout(0.5, 3)])
def test_a_plan_draws_no_random_number(dropout: float | Dropout) -> None:
    q, k, v = torch.randn(3, 1, 2, 9, 4)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    plan(q, k, v, dropout=dropout, mask=masks.bigbird(9, 2))
    assert torch.equal(torch.get_rng_state(), before)


LONG = 1_000_000
HUGE: dict[str, tuple[masks.Mask, int, bool]] = {
    "full": (masks.Full(), LONG**2, True),
    "causal": (masks.Causal(), LONG * (LONG + 1) // 2, True),
    "window": (masks.Window(9, 0), 10 * LONG - 45, True),
    "where": (masks.Where(lambda b, h, i, j: (i + j) % 2 == 0), LONG**2, False),
    "where in the past": (masks.Causal() & masks.Where(lambda b, h, i, j: i != j), LONG * (LONG + 1) // 2, False),
}


@pytest.mark.parametrize("name", HUGE)
def test_huge_plans_do_not_hang(name: str) -> None:
    mask, pairs, exact = HUGE[name]
    x = torch.zeros(1, 1, 1, 1).expand(1, 1, LONG, 1)
    found = plan(x, x, x, mask=mask)
    assert (found.visible_pairs, found.visible_exact) == (pairs, exact)
    assert found.bytes is not None
    assert found.bytes < 160 << 20  # a million rows of one number, each padded to a vector
    assert ("at most 5" in str(found)) == (name == "where in the past")


def test_relative_scores_of_a_long_plane_are_counted() -> None:
    x = torch.zeros(1, 1, 1, 1).expand(1, 1, 100_000, 1)
    found = plan(x, x, x, score=scores.Relative(torch.zeros(9, 1)))
    assert found.flops > 4 * found.all_pairs


@given(st.sampled_from(sorted(MASKS)), st.integers(0, 99))
@settings(max_examples=50)
def test_a_bound_is_a_bound(name: str, seed: int) -> None:
    case = Case(mask=name, seed=seed)
    _, spec, _ = case.build()
    size = case.sizes
    plane = Plane(size.batch, size.kv_heads, size.group, size.queries, size.keys, torch.tensor([size.query_start]))
    exact, sure = visible_pairs(spec["mask"], plane)
    bound, told = visible_pairs(spec["mask"], plane, looks=0)
    assert sure
    assert bound == exact if told else bound >= exact


def test_it_prints() -> None:
    q, k, v = torch.zeros(3, 1, 8, 4096, 64)
    lines = str(plan(q, k, v, mask=masks.local(129))).splitlines()
    assert lines[0] == "engine          native"
    assert lines[1] == "visible pairs   4,193,792 of 134,217,728 (3.1%)"
    assert lines[2].startswith("computed pairs  ")
    assert lines[3].startswith("forward         1.3 GFLOP in products")
    assert lines[4].startswith("memory          ")
    assert lines[4].endswith(" MiB beyond inputs and outputs")
    assert lines[5:] == [
        "second order    correct, by tiled's formula, in the memory of the dense formula (queries × keys)",
        "not tiled       It could, but it runs only when asked for: engine='tiled'.",
        "not sdpa        It cannot do this: torch takes a mask as a dense tensor only, not Window(64, 64).",
        "not flex        It could, but it runs only when asked for: engine='flex'.",
        "not reference   It could, but it runs only when asked for: engine='reference'.",
    ]


def test_the_page_on_engines_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")
    code, printed = re.findall(r"```(?:python|text)\n(.*?)```", page, re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == printed


def test_reasons_when_an_engine_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = torch.zeros(3, 1, 2, 5, 4)
    named = plan(q, k, v, engine="reference")
    assert named.engine == "reference"
    assert named.reasons == {
        "native": "It could, but 'reference' was asked for by name.",
        "tiled": "It could, but 'reference' was asked for by name.",
        "sdpa": "It could, but 'reference' was asked for by name.",
        "flex": "It could, but 'reference' was asked for by name.",
    }
    monkeypatch.setenv("REGARD_ENGINE", "reference")
    assert plan(q, k, v) == named


def test_torchs_own_engine() -> None:
    q, k, v = torch.zeros(3, 1, 2, 5, 4)
    found = plan(q, k, v, engine="sdpa")
    assert found.bytes is None
    assert "memory          only torch knows\n" in str(found)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        attend(q, k, v, engine="sdpa")
    assert found.flops == counter.get_total_flops() == 2 * 2 * 5 * 5 * (4 + 4)


def test_nothing_to_do() -> None:
    found = plan(torch.zeros(1, 2, 0, 4), torch.zeros(1, 2, 0, 4), torch.zeros(1, 2, 0, 4))
    assert (found.visible_pairs, found.flops) == (0, 0)
    assert "0 of 0 (none)" in str(found)


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ({"engine": "fast"}, ValueError),
        ({"engine": "sdpa", "normalizer": normalizers.Hard()}, ValueError),
        ({"dropout": 1.0}, ValueError),
        ({"dropout": "half"}, TypeError),
        ({"dropout": True}, TypeError),
        ({"temperature": 0.0}, ValueError),
        ({"mask": torch.zeros(5, 5)}, TypeError),
        ({"bias": biases.ALiBi(3)}, ValueError),
        ({"aux": "width"}, ValueError),
        ({"size": 3}, TypeError),
    ],
    ids=str,
)
def test_it_raises_what_attend_raises(spec: dict[str, Any], kind: type[Exception]) -> None:
    q, k, v = torch.zeros(3, 1, 2, 5, 4)
    texts = []
    for function in (attend, plan):
        with pytest.raises(kind) as raised:
            function(q, k, v, **spec)
        texts.append(str(raised.value).replace("plan()", "attend()"))
    assert texts[0] == texts[1]
