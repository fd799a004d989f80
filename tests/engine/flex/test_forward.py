"""What FlexAttention is given computes what the reference computes: its own formula on the CPU, in float64."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import attend, biases, masks, normalizers, scores
from regard.engine.request import request
from regard.testing import (
    BIASES,
    MASKS,
    PRODUCTS,
    SOFTMAXES,
    TEMPERATURES,
    Case,
    Sizes,
    error,
    mechanisms,
)

EPS = torch.finfo(torch.float64).eps
SERVED = [*PRODUCTS, "modified"]


def served(case: Case) -> bool:
    return case.score in SERVED and case.normalizer in SOFTMAXES and not case.dropout


def both(inputs: list[Tensor], spec: dict[str, Any]) -> list[tuple[Tensor, Tensor]]:
    """(ours, the reference's) of output and lse."""
    with torch.no_grad():
        (out, aux), (right, other) = (
            attend(*inputs, **spec, aux=("lse",), engine=engine) for engine in ("flex", "reference")
        )
    assert aux.lse is not None
    assert other.lse is not None
    return [(out, right), (aux.lse, other.lse)]


def agree(inputs: list[Tensor], spec: dict[str, Any]) -> None:
    for actual, truth in both(inputs, spec):
        finite = truth[truth.isfinite()]
        size = 1.0 + float(finite.abs().max() if finite.numel() else 0.0)
        assert actual.dtype == truth.dtype
        assert error(actual, truth) <= 64 * EPS * size


@pytest.mark.parametrize("case", [case for case in mechanisms() if served(case)], ids=str)
def test_every_mechanism_agrees(case: Case) -> None:
    inputs, spec, _ = case.build()
    agree(inputs, spec)


sizes = st.builds(
    Sizes,
    batch=st.integers(1, 3),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    queries=st.one_of(st.integers(1, 19), st.integers(120, 140)),
    keys=st.one_of(st.integers(1, 23), st.integers(250, 270)),
    d_key=st.integers(0, 20),
    d_value=st.integers(0, 20),
    query_start=st.integers(0, 130),
)
cases = st.builds(
    Case,
    score=st.sampled_from(SERVED),
    mask=st.sampled_from(sorted(MASKS)),
    bias=st.sampled_from(sorted(BIASES)),
    normalizer=st.sampled_from(SOFTMAXES),
    temperature=st.sampled_from(sorted(TEMPERATURES)),
    sizes=sizes,
    seed=st.integers(0, 2**31),
)


@given(cases)
@settings(max_examples=150)
def test_generated_cases_agree(case: Case) -> None:
    inputs, spec, _ = case.build()
    agree(inputs, spec)


@pytest.mark.slow
@given(cases)
@settings(max_examples=3000)
def test_many_generated_cases_agree(case: Case) -> None:
    inputs, spec, _ = case.build()
    agree(inputs, spec)


@given(cases, st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
@settings(max_examples=50)
def test_lower_precision_stays_within_the_formulas_error(case: Case, dtype: torch.dtype) -> None:
    """With an lse there is no compiled kernel on a CPU: this is FlexAttention's formula too."""
    (inputs, spec, _), (wide, wider, _) = case.build(dtype), case.build(torch.float64, through=dtype)
    with torch.no_grad():
        (out, aux), (plain, other) = (
            attend(*inputs, **spec, aux=("lse",), engine=engine) for engine in ("flex", "reference")
        )
        right, truth = attend(*wide, **wider, aux=("lse",), engine="reference")
    assert out.dtype == dtype
    # weights are rounded to the inputs' precision before they meet the values, and a sink rounds once more
    allowed = 3 * torch.finfo(dtype).eps * (1.0 + float(right.abs().amax() if right.numel() else 0.0))
    assert error(out, right) <= max(2 * error(plain, right), allowed)
    assert aux.lse is not None
    assert other.lse is not None
    assert truth.lse is not None
    # the lse comes in base 2 and is turned to nats
    finite = truth.lse[truth.lse.isfinite()]
    allowed = 3 * torch.finfo(torch.float32).eps * (1.0 + float(finite.abs().amax() if finite.numel() else 0.0))
    assert error(aux.lse, truth.lse) <= max(2 * error(other.lse, truth.lse), allowed)


STARTS = [-7, 0, 3, 1 << 40, torch.tensor([5, -2]), torch.tensor([2**61, -(2**61)])]


@pytest.mark.parametrize("start", STARTS, ids=str)
@pytest.mark.parametrize(
    "mask",
    [
        masks.Causal(),
        masks.Window(3, 2**61),
        masks.Dilated(3, 2),
        masks.Dilated(3, 2**59),
        masks.Global([0, 4]) | masks.local(3),
        masks.Where(lambda b, h, i, j: (i - j) % 3 != 1),
        masks.Where(lambda b, h, i, j: True),  # type: ignore[arg-type,return-value]
        masks.RowWhere(lambda b, h, q, k: k <= q),
        ~(masks.Lengths([3, 9]) & masks.Window(None, 1)),
    ],
    ids=repr,
)
def test_positions_are_absolute(mask: masks.Mask, start: int | Tensor) -> None:
    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, 2, n, 4, generator=draw, dtype=torch.float64) for n in (7, 9, 9)]
    agree(inputs, {"mask": mask, "query_start": start})


def test_a_key_may_stand_elsewhere_than_at_0() -> None:
    """Keys of a later shard: the engine's request says where the first one stands."""
    from regard.engine import flex, reference

    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, n, 4, generator=draw, dtype=torch.float64) for n in (7, 9, 9))
    prefix = masks.Prefix(torch.tensor([6, 13]))
    for mask in (masks.Causal() | prefix, masks.Global([6, 8]), masks.Documents(torch.arange(14) // 3), prefix):
        asked = request(
            q,
            k,
            v,
            score=scores.Modified(scores.ScaledDot(), lambda s, b, h, i, j: s + 0.1 * j - 0.2 * i),
            mask=mask,
            bias=biases.ALiBi(2) + biases.Distance(torch.linspace(0, 1, 7, dtype=torch.float64)),
            temperature=1.0,
            normalizer=normalizers.Softmax(),
            dropout=0.0,
            query_start=6,
            aux=("lse",),
            key_start=5,
        )
        ours, right = flex.run(asked), reference.run(asked)
        assert error(ours.out, right.out) <= 16 * EPS
        assert error(ours.row_state, right.row_state) <= 16 * EPS


def test_caps_and_functions_nest() -> None:
    draw = torch.Generator().manual_seed(0)
    inputs = [3 * torch.randn(1, 2, 6, 4, generator=draw, dtype=torch.float64) for _ in range(3)]
    capped = scores.SoftCapped(scores.Cosine(9.0), 2.0)
    for score in (
        scores.Modified(capped, lambda s, b, h, i, j: s * (1 + h)),
        scores.SoftCapped(scores.Modified(capped, lambda s, b, h, i, j: s - 0.3 * i), 1.0),
        scores.Modified(scores.Dot(), lambda s, b, h, i, j: 1.5),  # type: ignore[arg-type,return-value]
        scores.Modified(scores.Dot(), lambda s, b, h, i, j: torch.where(j > i, -torch.inf, s)),
        scores.ScaledDot(-0.5),
        scores.ScaledDot(0.0),
    ):
        agree(inputs, {"score": score, "bias": biases.ALiBi(2), "temperature": 0.6})


def test_a_mask_and_a_bias_of_one_number_broadcast() -> None:
    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(3, 2, 6, 4, generator=draw, dtype=torch.float64) for _ in range(3)]
    for seen in (True, False):
        agree(inputs, {"mask": torch.tensor([[seen]]), "bias": torch.tensor([[0.5]], dtype=torch.float64)})


def test_flex_block_masks_come_back_as_they_were() -> None:
    from torch.nn.attention.flex_attention import create_block_mask

    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1, 2, 300, 4, generator=draw, dtype=torch.float64) for _ in range(3)]
    block = create_block_mask(lambda b, h, q, k: (q - k).abs() < 70 * (h + 1), None, 2, 300, 300, device="cpu")
    agree(inputs, {"mask": masks.from_flex(block) & masks.Causal()})
