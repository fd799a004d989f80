"""Precision: accumulation in at least float32, one rounding at the end, and inputs at the edge of the floats."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import attend, normalizers, scores
from regard.engine.request import AUX
from regard.spec.plane import Plane
from regard.testing import (
    BIASES,
    MASKS,
    SCORES,
    SOFTMAXES,
    TEMPERATURES,
    Case,
    Sizes,
    assert_within,
    error,
    small_tiles,
)
from tests.oracles.rounding import NEAREST, budget, scatter

ENGINES = ["reference", "tiled", "native"]
HALVES = [torch.bfloat16, torch.float16]
SINGLE = [torch.float32, *HALVES]
ENOUGH = 4096  # elements, so that a root mean square means something
SIZES = Sizes(batch=2, kv_heads=2, group=2, queries=33, keys=67, d_key=16, d_value=16, query_start=20)


def outcome(case: Case, dtype: torch.dtype, through: torch.dtype, engine: str, scale: float) -> dict[str, Tensor]:
    """Output, lse and the gradients of all leaves with enough elements; inputs are exact in `through`.

    "terms" are the gradients with the lse held fixed: what is left before w · (dP − O·dO) is subtracted.
    """
    inputs, spec, leaves = case.build(dtype, through, scale)
    softmax = case.normalizer != "sparsemax"
    generator = torch.Generator().manual_seed(case.seed)
    with small_tiles(8, 16):
        out, aux = attend(*inputs, **spec, aux="lse" if softmax else "peak", engine=engine)
        found = {"out": out}
        if aux.lse is not None:  # the gradient of sparsemax jumps where a key enters the support
            found["lse"] = aux.lse
            assert aux.lse.dtype == torch.promote_types(dtype, torch.float32)
            upstream = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(through).to(dtype)
            wanted = {name: leaf for name, leaf in leaves.items() if leaf.numel() >= ENOUGH}
            ends, starts = [out, aux.lse], list(wanted.values())
            for name, delta in (("grad", torch.zeros_like(aux.lse)), ("terms", (upstream * out).sum(-1).to(aux.lse))):
                grads = torch.autograd.grad(ends, starts, [upstream, delta], retain_graph=True, materialize_grads=True)
                found |= {f"{name} {leaf}": grad for leaf, grad in zip(wanted, grads, strict=True)}
    return found


# the derivative of relu jumps at 0, and of a million arguments some lie within one rounding of it
SMOOTH = sorted(set(SCORES) - {"mlp relu"})
cases = st.builds(
    Case,
    score=st.sampled_from(SMOOTH),
    mask=st.sampled_from(sorted(MASKS)),
    bias=st.sampled_from(sorted(BIASES)),
    normalizer=st.sampled_from(["softmax", "sink", "zero sink", "sparsemax"]),
    temperature=st.sampled_from(sorted(TEMPERATURES)),
    dropout=st.sampled_from([0.0, 0.3]),
    sizes=st.just(SIZES),
    seed=st.integers(0, 2**31),
)
# beyond, a few rows whose best keys are nearly equal make all of the error: too few for a root mean square
scales = st.sampled_from([0.25, 1.0, 2.0])
# beyond, most rows see one key only, and what is left of their gradients is float32's own rounding
moderate = st.sampled_from([0.25, 1.0])


# of the products, dot and general have logits of hundreds here: then a few nearly equal keys make all of the error
products = st.builds(
    replace,
    cases,
    score=st.sampled_from(["scaled", "cosine", "soft-capped"]),
    normalizer=st.sampled_from(SOFTMAXES),
    sizes=st.just(SIZES),
)


def as_exact_as_the_formula(case: Case, dtype: torch.dtype, scale: float, engine: str = "tiled") -> None:
    truth = outcome(case, torch.float64, dtype, "reference", scale)
    plain = outcome(case, dtype, dtype, "reference", scale)
    found = outcome(case, dtype, dtype, engine, scale)
    assert found["out"].numel() >= ENOUGH
    scattered: dict[str, float] = {}
    for name, right in truth.items():
        assert found[name].dtype == plain[name].dtype, name
        off, formulas = error(found[name], right), error(plain[name], right)
        eps, terms = torch.finfo(found[name].dtype).eps, 0.0
        if name.startswith("grad"):
            # the formula subtracts numbers rounded alike; tile by tile they were not, which costs one rounding
            terms = eps * error(truth[f"terms {name[5:]}"], torch.zeros_like(right))
            allowed = 2 * formulas + terms
        else:
            finite = right.detach()[right.isfinite()]
            allowed = max(2 * formulas, eps * float(finite.abs().max() if finite.numel() else 0.0))
        # where a few numbers make all of the error, one draw of the formula's says little
        if off > allowed and found[name].dtype == torch.float32:
            scattered = scattered or scatter(
                lambda rounded: outcome(case, torch.float64, dtype, "reference", scale), truth, NEAREST
            )
            allowed = budget(max(formulas, scattered[name]), right, found[name].dtype) + terms
        assert off <= allowed, f"{name} of {case!r} in {dtype}: error {off:.3g}, allowed {allowed:.3g}"


def rounds_once(case: Case, dtype: torch.dtype, scale: float, engine: str) -> None:
    truth = outcome(case, torch.float64, dtype, "reference", scale)
    found = outcome(case, dtype, dtype, engine, scale)
    for name, right in truth.items():
        if name == "out" or name.startswith("grad"):
            assert found[name].dtype == dtype
            assert error(found[name], right) <= 1.05 * error(right.to(dtype), right), (name, case, dtype)


@pytest.mark.parametrize("dtype", SINGLE, ids=str)
@given(cases, scales)
@settings(max_examples=15)
def test_tiled_is_as_exact_as_the_formula(dtype: torch.dtype, case: Case, scale: float) -> None:
    as_exact_as_the_formula(case, dtype, scale)


@pytest.mark.parametrize("dtype", SINGLE, ids=str)
@given(products, scales)
@settings(max_examples=30)
def test_native_is_as_exact_as_the_formula(dtype: torch.dtype, case: Case, scale: float) -> None:
    as_exact_as_the_formula(case, dtype, scale, "native")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@given(st.data(), moderate)
@settings(max_examples=10)
def test_half_precision_rounds_once(engine: str, dtype: torch.dtype, data: st.DataObject, scale: float) -> None:
    case = data.draw(products if engine == "native" else cases)
    rounds_once(case, dtype, scale, engine)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", SINGLE, ids=str)
@given(cases, scales)
@settings(max_examples=200)
def test_tiled_is_as_exact_as_the_formula_in_many_cases(dtype: torch.dtype, case: Case, scale: float) -> None:
    as_exact_as_the_formula(case, dtype, scale)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@given(st.data(), moderate)
@settings(max_examples=150)
def test_half_precision_rounds_once_in_many_cases(
    engine: str, dtype: torch.dtype, data: st.DataObject, scale: float
) -> None:
    case = data.draw(products if engine == "native" else cases)
    rounds_once(case, dtype, scale, engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.float64, *SINGLE], ids=str)
def test_types_of_results(dtype: torch.dtype, engine: str) -> None:
    query, key, value = (torch.randn(1, 2, 5, 4).to(dtype).requires_grad_() for _ in range(3))
    out, aux = attend(query, key, value, temperature=torch.tensor(0.5), aux=AUX, engine=engine)
    assert out.dtype == dtype
    for name in AUX:
        wide = torch.promote_types(dtype, torch.float32)
        assert getattr(aux, name).dtype == (torch.int64 if name == "peak_at" else wide), name
    for grad in torch.autograd.grad(out.sum(), (query, key, value)):
        assert grad.dtype == dtype


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def compared(query: Tensor, key: Tensor, value: Tensor, engine: str, slope: float, **spec: Any) -> Tensor:
    """The output; it is finite and within the budget of the plain formula, and so are the gradients of its sum.

    `slope` is the largest |dx / d(q·k)|. The gradient of x is w · (dP − O·dO), where both terms have d_v products, so
    one that should vanish is left with their rounding, times the other factor of q·k. That of a value sums n weights.
    """
    found = []
    for dtype, name in ((query.dtype, engine), (query.dtype, "reference"), (torch.float64, "reference")):
        leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in (query, key, value)]
        with small_tiles():
            out = attend(*leaves, **spec, engine=name)
            found.append((out, *torch.autograd.grad(out.sum(), leaves)))
    assert_within(found[0][0], found[1][0], found[2][0])
    eps, queries = torch.finfo(query.dtype).eps, query.shape[-2]
    left = 2 * eps * slope * value.shape[-1] * float(value.abs().max())
    rounding = (left * float(key.abs().max()), left * queries * float(query.abs().max()), eps * queries)
    for actual, plain, truth, bound in zip(*(grads[1:] for grads in found), rounding, strict=True):
        assert actual.isfinite().all()
        assert error(actual, truth) <= max(2 * error(plain, truth), bound)
    result: Tensor = found[0][0].detach()
    return result


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [1e3, 1e10, 1e15])
def test_scores_up_to_1e30(size: float, engine: str) -> None:
    """All weight falls on the largest score, and the others do not disturb it."""
    query, key, value = (draw(2, 3, 13, 5, seed=seed).float() for seed in range(3))
    out = compared(query * size, key * size, value, engine, 1.0, score=scores.Dot(), mask="causal")
    logits = (query.double() @ key.double().mT).masked_fill(torch.ones(13, 13).triu(1).bool(), -torch.inf)
    best = logits.argmax(-1, keepdim=True)
    assert torch.equal(out, value.gather(2, best.expand_as(value)))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "normalizer", [normalizers.Hard(), normalizers.Sparsemax(), normalizers.Softmax(0.0)], ids=repr
)
@pytest.mark.parametrize("sign", [1, -1])
def test_other_normalizers_at_1e30(sign: int, normalizer: normalizers.Normalizer, engine: str) -> None:
    zero, value = torch.zeros(1, 1, 1, 2), draw(1, 1, 5, 3).float()
    bias = torch.tensor([1e30, 3e30, -1e30, 2e30, 1.0]) * sign
    out = attend(zero, zero.expand(1, 1, 5, 2), value, bias=bias, normalizer=normalizer, engine=engine)
    assert torch.equal(out[0, 0, 0], value[0, 0, 1 if sign > 0 else 2])


@pytest.mark.parametrize("engine", ENGINES)
def test_the_largest_half_precision_numbers(engine: str) -> None:
    largest = torch.finfo(torch.float16).max
    query, key = (draw(2, 3, 13, 5, seed=seed).sign().to(torch.float16) * largest for seed in range(2))
    value = torch.full((2, 3, 13, 4), largest, dtype=torch.float16)
    assert torch.equal(attend(query, key, value, engine=engine), value)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", SINGLE, ids=str)
def test_numbers_below_the_smallest_normal(dtype: torch.dtype, engine: str) -> None:
    """Scores that vanish give equal weights; values that are subnormal keep the digits they have."""
    tiny = torch.finfo(dtype).smallest_normal
    query, key, value = ((draw(2, 3, 8, 5, seed=seed) * tiny / 8).to(dtype) for seed in range(3))
    assert (value.abs() < tiny).all()
    out = attend(query, key, value, engine=engine)
    step = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps  # between neighbors
    distance = (out.double() - value.double().mean(2, keepdim=True)).abs()
    # eight products and their sum are rounded to float32's own steps; half types round once more
    assert float(distance.max()) <= (8 if dtype in (torch.float32, torch.bfloat16) else 0.5001) * step


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [1e-30, 1e-3, 1e30])
def test_cosine_needs_no_moderate_vectors(size: float, engine: str) -> None:
    query, key, value = (draw(2, 3, 13, 5, seed=seed).float() for seed in range(3))
    compared(query * size, key * size, value, engine, 3.0 / size**2, score=scores.Cosine(3.0))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [1.0, 1e3, 1e10, 1e18])
def test_a_soft_cap_holds_at_any_score(size: float, engine: str) -> None:
    query, key, value = (draw(2, 3, 13, 5, seed=seed).float() for seed in range(3))
    compared(query * size, key * size, value, engine, 1.0, score=scores.SoftCapped(scores.Dot(), 50.0))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("temperature", [1e-6, 1e-3, 1e3, 1e30])
def test_temperatures_far_from_one(temperature: float, engine: str) -> None:
    query, key, value = (draw(2, 3, 13, 5, seed=seed).float() for seed in range(3))
    out = compared(query, key, value, engine, 5**-0.5 / temperature, temperature=temperature)
    if temperature == 1e30:
        eps = torch.finfo(torch.float32).eps
        assert float((out - value.mean(2, keepdim=True)).abs().max()) <= 13 * eps * float(value.abs().max())


def test_the_budgets_can_fail() -> None:
    truth = torch.ones(ENOUGH, dtype=torch.float64)
    plain = truth.float() + 1e-6
    for wrong in (truth.float() + 1e-5, truth.float() * torch.nan):
        with pytest.raises(AssertionError):
            assert_within(wrong, plain, truth)


def test_the_gradient_of_v_over_a_tile_is_as_exact_as_the_formula() -> None:
    """It is a sum over all pairs of the tile, here of positive numbers."""
    plane = Plane(1, 1, 1, 64, 256, torch.tensor([0]))

    def gradient(lowered: bool, dtype: torch.dtype, seed: int) -> Tensor:
        made = torch.Generator().manual_seed(seed)
        query, key = (torch.randn(1, 1, 1, length, 4, generator=made).to(dtype) for length in (64, 256))
        w_query, w_key, v = (torch.randn(*shape, generator=made).to(dtype) for shape in ((4, 4), (4, 4), (4,)))
        score = scores.ConcatMLP(w_query, w_key, None, v.requires_grad_(), "sigmoid")
        form = score.lower(query, key)
        cut = tuple(operand.tensor for operand in form.operands)
        found = form.evaluate(plane.all, None, cut) if lowered else score.formula(query, key, plane.all)
        along = torch.rand(found.shape, generator=made).to(dtype)
        return torch.autograd.grad(found, v, along)[0]

    def gradients(lowered: bool, dtype: torch.dtype) -> Tensor:
        return torch.cat([gradient(lowered, dtype, seed) for seed in range(8)])

    truth = gradients(False, torch.float64)
    assert_within(gradients(True, torch.float32), gradients(False, torch.float32), truth, "gradient of v")
