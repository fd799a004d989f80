"""Narrow masks: rows that see 0 to 3 keys have gradients as exact as those of the plain formula.

There dx = w · (dP − Σ w · dP) is a small difference: of a row that sees one key it is nothing but rounding, and the
formula, whose sum holds the same number, gives exactly 0.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import attend, masks
from regard.testing import BIASES, SOFTMAXES, TEMPERATURES, Case, Draw, Sizes, error

ENGINES = ["native", "tiled"]
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
ENOUGH = 4096  # numbers, so that a root mean square means something


def sparse(size: Sizes, draw: Draw, most: int, heads: int = 1) -> masks.Mask:
    """0 to `most` keys anywhere, for every row its own."""
    count = draw.integers(0, most + 1, size.batch, heads, size.queries, 1)
    places = torch.rand(size.batch, heads, size.queries, size.keys, generator=draw.generator).argsort(-1).argsort(-1)
    return masks.Dense(places < count)


def alone(size: Sizes, draw: Draw) -> masks.Mask:
    """Documents of one token."""
    return masks.Documents(
        torch.arange(size.keys).expand(size.batch, -1),
        (torch.arange(size.queries) + size.query_start).expand(size.batch, -1),
    )


NARROW: dict[str, Callable[[Sizes, Draw], masks.Mask]] = {
    "before": lambda size, draw: masks.Window(1, 0),
    "after": lambda size, draw: masks.Window(0, 1),
    "dilated": lambda size, draw: masks.Dilated(3, size.keys // 4),
    "documents": lambda size, draw: masks.Documents(
        draw.integers(0, size.keys // 2, size.batch, size.keys),
        draw.integers(0, size.keys // 2, size.batch, size.queries),
    ),
    "lengths": lambda size, draw: masks.Lengths(draw.integers(1, 3, size.batch)),
    "sparse": lambda size, draw: sparse(size, draw, 3),
    "sparse by head": lambda size, draw: sparse(size, draw, 2, size.heads),
    "causal": lambda size, draw: masks.Causal(),
    "global": lambda size, draw: masks.Global(torch.tensor([1, size.keys // 2])),
}
ONE_KEY: dict[str, Callable[[Sizes, Draw], masks.Mask]] = {
    "self": lambda size, draw: masks.Window(0, 0),
    "documents of one": alone,
    "lengths of one": lambda size, draw: masks.Lengths(torch.ones(size.batch, dtype=torch.int64)),
    "at most one": lambda size, draw: sparse(size, draw, 1),
    "first key": lambda size, draw: masks.Causal() & masks.Global(torch.tensor([0, size.keys - 1])) & masks.Prefix(1),
}
SCORES = ["scaled", "cosine", "soft-capped", "additive", "mlp tanh", "mlp gelu", "mlp sigmoid"]
SHORT = Sizes(batch=2, kv_heads=2, group=2, queries=40, keys=50, d_key=24, d_value=24, query_start=5)
LONG = Sizes(batch=1, kv_heads=2, group=2, queries=150, keys=300, d_key=9, d_value=20, query_start=60)

cases = st.builds(
    Case,
    score=st.sampled_from(SCORES),
    bias=st.sampled_from(sorted(set(BIASES) - {"hiding"})),
    normalizer=st.sampled_from(SOFTMAXES),
    temperature=st.sampled_from(sorted(TEMPERATURES)),
    dropout=st.sampled_from([0.0, 0.3]),
    sizes=st.sampled_from([SHORT, LONG]),
    seed=st.integers(0, 2**31),
)


def gradients(case: Case, mask: masks.Mask, dtype: torch.dtype, through: torch.dtype, engine: str) -> dict[str, Tensor]:
    """Output and the gradients of all leaves; inputs are exact in `through`."""
    inputs, spec, leaves = case.build(dtype, through)
    out = attend(*inputs, **{**spec, "mask": mask}, engine=engine)
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(case.seed), dtype=torch.float64)
    grads = torch.autograd.grad(out, list(leaves.values()), upstream.to(through).to(dtype), materialize_grads=True)
    return {"out": out.detach(), **dict(zip(leaves, grads, strict=True))}


def as_exact(case: Case, name: str, dtype: torch.dtype, engine: str) -> None:
    """At most twice the formula's error, or one rounding of the right result, in every result with enough numbers.

    Half types are computed in float32 and rounded once. No truth of float64 is at hand: there the formula's error is
    2⁻²⁹ of that in float32, and the right result has as much.
    """
    mask = NARROW[name](case.sizes, Draw(case.seed))
    single = torch.float32 if dtype == torch.float64 else dtype
    truth = gradients(case, mask, torch.float64, single, "reference")
    plain = gradients(case, mask, torch.float32, single, "reference")
    right = gradients(case, mask, torch.float64, dtype, "reference") if dtype == torch.float64 else truth
    found = gradients(case, mask, dtype, dtype, engine)
    for leaf, exact in right.items():
        what = f"{leaf} of {case} under {name} in {dtype} on {engine}"
        wrong = error(found[leaf], exact)  # fails on NaN
        if exact.numel() < ENOUGH:
            continue
        if dtype == torch.float64:
            allowed = 3 * 2.0**-29 * max(error(plain[leaf], truth[leaf]), error(truth[leaf].float(), truth[leaf]))
        else:
            allowed = 2 * max(error(plain[leaf].to(dtype), exact), error(exact.to(dtype), exact))
        assert wrong <= allowed, f"{what}: error {wrong:.3g}, allowed {allowed:.3g}"


@pytest.mark.parametrize("engine", ENGINES)
@given(cases, st.sampled_from(sorted(NARROW)), st.sampled_from(TYPES))
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
def test_a_few_visible_keys(engine: str, case: Case, name: str, dtype: torch.dtype) -> None:
    as_exact(case, name, dtype, engine)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@given(cases, st.sampled_from(sorted(NARROW)), st.sampled_from(TYPES))
@settings(max_examples=500, suppress_health_check=list(HealthCheck))
def test_a_few_visible_keys_in_many_cases(engine: str, case: Case, name: str, dtype: torch.dtype) -> None:
    as_exact(case, name, dtype, engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("name", ONE_KEY)
def test_one_visible_key_has_no_gradient(name: str, dropout: float, engine: str) -> None:
    """Exactly: a softmax over one key is 1, whatever its logit."""
    plain = Case(bias="distance", temperature="per head", dropout=dropout, seed=3)
    for sizes in (SHORT, LONG):
        for case in (replace(plain, sizes=sizes), replace(plain, sizes=sizes, score="additive", bias="none")):
            mask = ONE_KEY[name](sizes, Draw(1))
            for dtype in TYPES:
                found = gradients(case, mask, dtype, dtype, engine)
                assert bool(found.pop("out").count_nonzero()), case
                assert bool(found.pop("value").count_nonzero()), case
                for leaf, grad in found.items():
                    assert torch.equal(grad, torch.zeros_like(grad)), (leaf, case, dtype)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["after", "sparse"])
def test_sums_over_all_rows(name: str, engine: str) -> None:
    """The gradients of a temperature, a sink and a table have few numbers: their errors are joined over many cases."""
    squares: dict[str, list[float]] = {}
    for seed in range(16):
        case = Case(bias="distance", temperature="per head", normalizer="sink", sizes=SHORT, seed=seed)
        mask = NARROW[name](SHORT, Draw(seed))
        truth = gradients(case, mask, torch.float64, torch.float32, "reference")
        plain = gradients(case, mask, torch.float32, torch.float32, "reference")
        found = gradients(case, mask, torch.float32, torch.float32, engine)
        for leaf in ("temperature", "sink", "distance"):
            sums = squares.setdefault(leaf, [0.0, 0.0])
            sums[0] += error(found[leaf], truth[leaf]) ** 2
            sums[1] += error(plain[leaf], truth[leaf]) ** 2
    for leaf, (ours, formula) in squares.items():
        assert ours <= 4 * formula, (leaf, (ours / formula) ** 0.5)
