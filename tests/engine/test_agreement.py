"""Every engine agrees with the reference in float64: outputs, statistics and gradients, over generated cases."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import attend
from regard.engine.request import AUX
from regard.testing import (
    BIASES,
    MASKS,
    NORMALIZERS,
    PRODUCTS,
    SCORES,
    SOFTMAXES,
    TEMPERATURES,
    Case,
    Sizes,
    error,
    mechanisms,
    small_tiles,
)
from tests.oracles.rounding import budget, scatter

EPS = torch.finfo(torch.float64).eps


def outcome(case: Case, engine: str, nudge: float = 0.0) -> dict[str, Tensor]:
    """Output, statistics and the gradient of a random functional of out, lse and entropy; inputs times 1 ± nudge."""
    inputs, spec, leaves = case.build()
    signs = torch.Generator().manual_seed(case.seed + 2)
    with torch.no_grad():
        for leaf in leaves.values():
            leaf.mul_(1.0 + nudge * (2 * torch.randint(2, leaf.shape, generator=signs) - 1))
    aux = tuple(name for name in AUX if name != "lse" or case.normalizer in ("softmax", "sink", "zero sink"))
    with small_tiles():
        out, more = attend(*inputs, **spec, aux=aux, engine=engine)
        generator = torch.Generator().manual_seed(case.seed + 1)
        loss = out.new_zeros(())
        for tensor in [out, *(part for part in (more.entropy, more.lse) if part is not None)]:
            weight = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
            loss = loss + (weight * torch.where(tensor.isfinite(), tensor, 0.0)).sum()
        found: tuple[Tensor | None, ...] = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    grads = {
        f"grad {name}": torch.zeros_like(leaf) if grad is None else grad
        for (name, leaf), grad in zip(leaves.items(), found, strict=True)
    }
    return {"out": out, **{name: getattr(more, name) for name in aux}, **grads}


def formulas_own(case: Case, truth: dict[str, Tensor]) -> dict[str, float]:
    """How far the roundings of float64 take the formula: found with more of them, and so few that no key enters or
    leaves sparsemax's support for them."""
    times = 2.0**12
    found = scatter(lambda rounded: outcome(case, "reference"), truth, times * EPS / 2)
    return {name: off / times for name, off in found.items()}


def agree(case: Case, engine: str) -> None:
    """Differ by the roundings of a few hundred operations, by what one more digit in the inputs would change, or by
    the budget over what roundings at every step do to the formula."""
    truth, found = outcome(case, "reference"), outcome(case, engine)
    moved = outcome(case, "reference", nudge=16 * EPS)
    scattered: dict[str, float] = {}
    for name, right in truth.items():
        finite = right.detach().double()[right.isfinite()]
        size = 1.0 + float(finite.abs().max() if finite.numel() else 0.0)
        if name == "grad temperature":  # a sum of gradients times logits, which cancel
            logits = truth["max_logit"].detach()
            size *= 1.0 + float(logits[logits.isfinite()].abs().max() if logits.isfinite().any() else 0.0)
        off, allowed = error(found[name], right), max(512 * EPS * size, error(moved[name], right))
        if off > allowed:
            scattered = scattered or formulas_own(case, truth)
            allowed = budget(scattered[name], right, torch.float64)
        assert off <= allowed, f"{name} of {case!r}: error {off:.3g}, allowed {allowed:.3g}"


@pytest.mark.parametrize("case", mechanisms(), ids=str)
def test_every_mechanism_agrees(case: Case) -> None:
    agree(case, "tiled")


@pytest.mark.parametrize("case", [case for case in mechanisms() if case.product], ids=str)
def test_every_mechanism_of_product_form_agrees_natively(case: Case) -> None:
    agree(case, "native")


sizes = st.builds(
    Sizes,
    batch=st.integers(1, 3),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    queries=st.integers(0, 19),
    keys=st.integers(0, 23),
    d_key=st.integers(1, 7),
    d_value=st.integers(1, 6),
    query_start=st.integers(0, 5),
)


def cases(**fixed: st.SearchStrategy[str]) -> st.SearchStrategy[Case]:
    names = {
        "score": st.sampled_from(sorted(SCORES)),
        "mask": st.sampled_from(sorted(MASKS)),
        "bias": st.sampled_from(sorted(BIASES)),
        "normalizer": st.sampled_from(sorted(NORMALIZERS)),
        "temperature": st.sampled_from(sorted(TEMPERATURES)),
    }
    return st.builds(
        Case, **{**names, **fixed}, dropout=st.sampled_from([0.0, 0.4]), sizes=sizes, seed=st.integers(0, 2**31)
    )


@given(cases())
@settings(max_examples=200)
def test_generated_cases_agree(case: Case) -> None:
    agree(case, "tiled")


# Past the edges of register tiles, blocks of queries (48), key blocks (128) and key segments (256).
larger = st.builds(
    Sizes,
    batch=st.integers(1, 2),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    queries=st.one_of(st.integers(0, 19), st.integers(40, 110)),
    keys=st.one_of(st.integers(0, 40), st.integers(100, 300), st.integers(500, 530)),
    d_key=st.one_of(st.integers(1, 40), st.sampled_from([64, 80, 128])),
    d_value=st.one_of(st.integers(1, 40), st.sampled_from([64, 80, 128])),
    query_start=st.integers(0, 300),
)
products = st.builds(
    Case,
    score=st.sampled_from(PRODUCTS),
    mask=st.sampled_from(sorted(MASKS)),
    bias=st.sampled_from(sorted(BIASES)),
    normalizer=st.sampled_from(SOFTMAXES),
    temperature=st.sampled_from(sorted(TEMPERATURES)),
    dropout=st.sampled_from([0.0, 0.4]),
    sizes=larger,
    seed=st.integers(0, 2**31),
)


@given(products)
@settings(max_examples=150)
def test_generated_cases_agree_natively(case: Case) -> None:
    agree(case, "native")


@pytest.mark.slow
@given(products)
@settings(max_examples=2000)
def test_many_generated_cases_agree_natively(case: Case) -> None:
    agree(case, "native")


FAMILIES = [
    (kind, name)
    for kind, table in (
        ("score", SCORES),
        ("mask", MASKS),
        ("bias", BIASES),
        ("normalizer", NORMALIZERS),
        ("temperature", TEMPERATURES),
    )
    for name in table
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), FAMILIES)
def test_many_generated_cases_of_each_mechanism_agree(kind: str, name: str) -> None:
    @given(cases(**{kind: st.just(name)}))
    @settings(max_examples=500)
    def sweep(case: Case) -> None:
        agree(case, "tiled")

    sweep()
