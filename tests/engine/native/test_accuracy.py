"""Accuracy: the root mean square error against float64, divided by that of the plain formula in the same precision.

The plain formula is `reference`. Only results of at least 4,096 numbers that are not 0 count (rows that see nothing are
right in every engine, and the chance of a few rows is no measure), and the denominator is at least the rounding of the
right result.
"""

from statistics import median

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import attend
from regard.testing import BIASES, MASKS, SOFTMAXES, TEMPERATURES, Case, Sizes

ENOUGH = 4096
# general has logits of hundreds here: a few rows whose best keys are nearly equal then make all of the error, too few
# for a root mean square
SCORES = ["dot", "scaled", "cosine", "soft-capped"]
cases = st.builds(
    Case,
    score=st.sampled_from(SCORES),
    mask=st.sampled_from(sorted(set(MASKS) - {"nothing"})),
    bias=st.sampled_from(sorted(BIASES)),
    normalizer=st.sampled_from(SOFTMAXES),
    temperature=st.sampled_from(sorted(TEMPERATURES)),
    dropout=st.sampled_from([0.0, 0.2]),
    sizes=st.builds(
        Sizes,
        batch=st.integers(1, 2),
        kv_heads=st.integers(1, 2),
        group=st.integers(1, 2),
        queries=st.integers(64, 200),
        keys=st.integers(64, 600),
        d_key=st.integers(8, 128),
        d_value=st.integers(16, 128),
        query_start=st.integers(0, 300),
    ),
    seed=st.integers(0, 2**31),
)


def outcome(case: Case, dtype: torch.dtype, through: torch.dtype, engine: str) -> dict[str, Tensor]:
    inputs, spec, leaves = case.build(dtype, through)
    out = attend(*inputs, **spec, engine=engine)
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    named = {name: leaves[name] for name in ("query", "key", "value")}
    grads = torch.autograd.grad(out, list(named.values()), upstream.to(through).to(dtype), materialize_grads=True)
    return {"out": out.detach(), **{f"grad {name}": grad for name, grad in zip(named, grads, strict=True)}}


def rms(found: Tensor, right: Tensor) -> float:
    error = (found.double() - right).square().mean().sqrt()
    assert bool(error.isfinite())
    return float(error)


def ratios(case: Case, dtype: torch.dtype, rounded: bool) -> dict[str, float]:
    truth = outcome(case, torch.float64, dtype, "reference")
    plain = truth if rounded else outcome(case, dtype, dtype, "reference")
    found = outcome(case, dtype, dtype, "native")
    ratio = {}
    for name, right in truth.items():
        once = rms(right.to(dtype), right)
        floor = max(once, 0.0 if rounded else rms(plain[name], right))
        if int(right.count_nonzero()) >= ENOUGH and floor > 0:
            ratio[name] = rms(found[name], right) / floor
    return ratio


def swept(number: int, dtype: torch.dtype, rounded: bool) -> tuple[list[float], list[float]]:
    """Ratios of outputs and of gradients, over generated cases."""
    outputs: list[float] = []
    gradients: list[float] = []

    @given(cases)
    @settings(max_examples=number, suppress_health_check=list(HealthCheck), database=None, deadline=None)
    def sweep(case: Case) -> None:
        for name, ratio in ratios(case, dtype, rounded).items():
            (outputs if name == "out" else gradients).append(ratio)

    sweep()
    return outputs, gradients


def holds(number: int) -> None:
    outputs, gradients = swept(number, torch.float32, rounded=False)
    assert median(outputs) <= 1.05
    assert max(outputs) <= 1.15, max(outputs)
    assert median(gradients) <= 1.05
    assert max(gradients) <= 1.3, max(gradients)


def test_as_exact_as_the_plain_formula() -> None:
    holds(60)


@pytest.mark.slow
def test_as_exact_as_the_plain_formula_in_many_cases() -> None:
    holds(600)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_types_round_once(dtype: torch.dtype) -> None:
    outputs, _ = swept(20, dtype, rounded=True)
    assert max(outputs) <= 1.05


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_types_round_once_in_many_cases(dtype: torch.dtype) -> None:
    outputs, gradients = swept(500, dtype, rounded=True)
    assert max(outputs) <= 1.05
    assert max(gradients) <= 1.05
