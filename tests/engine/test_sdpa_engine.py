"""torch's own attention as an engine: what it takes it computes like the reference, what it does not take it says."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard import Dropout, attend, biases, masks, normalizers, plan, scores
from regard.engine import sdpa
from regard.engine.request import request
from regard.testing import Case, Sizes, error

DEFAULTS: dict[str, Any] = {
    "score": scores.ScaledDot(),
    "mask": None,
    "bias": None,
    "temperature": 1.0,
    "normalizer": normalizers.Softmax(),
    "dropout": 0.0,
    "query_start": None,
    "aux": (),
}

cases = st.builds(
    Case,
    score=st.sampled_from(["dot", "scaled"]),
    mask=st.sampled_from(["full", "causal", "dense", "padding"]),
    bias=st.sampled_from(["none", "dense", "hiding"]),
    temperature=st.sampled_from(["1", "0.7"]),
    sizes=st.builds(
        Sizes,
        batch=st.integers(1, 3),
        kv_heads=st.integers(1, 2),
        group=st.integers(1, 3),
        queries=st.integers(0, 19),
        keys=st.integers(0, 23),
        d_key=st.integers(1, 7),
        d_value=st.integers(1, 6),
        query_start=st.sampled_from([0, 0, 3]),
    ),
    seed=st.integers(0, 2**31),
)


@given(cases)
def test_what_it_takes_agrees_with_the_reference(case: Case) -> None:
    inputs, spec, leaves = case.build()
    reason = sdpa.supports(request(*inputs, **{**DEFAULTS, **spec}))
    refused = case.mask == "causal" and (case.bias != "none" or case.sizes.query_start != 0)
    assert (reason is not None) == refused
    if refused:
        return
    found = []
    for engine in ("sdpa", "reference"):
        out = attend(*inputs, **spec, engine=engine)
        assert isinstance(out, Tensor)
        weight = torch.linspace(-1.0, 2.0, out.numel(), dtype=out.dtype).view_as(out)
        found.append([out, *torch.autograd.grad((out * weight).sum(), list(leaves.values()), materialize_grads=True)])
    for actual, truth in zip(*found, strict=True):
        size = 1.0 + float(truth.detach().abs().amax() if truth.numel() else 0.0)
        assert error(actual, truth) <= 512 * torch.finfo(torch.float64).eps * size


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mask", ["full", "causal", "dense"])
def test_other_precisions_run(dtype: torch.dtype, mask: str) -> None:
    inputs, spec, _ = Case(mask=mask, sizes=Sizes(query_start=0)).build(dtype)
    out = attend(*inputs, **spec, engine="sdpa")
    truth = attend(*(tensor.double() for tensor in inputs), **spec, engine="reference")
    assert isinstance(out, Tensor)
    assert isinstance(truth, Tensor)
    assert out.dtype == dtype
    assert error(out, truth) < 8 * torch.finfo(dtype).eps


def test_a_row_without_a_key_is_zero() -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 4, requires_grad=True)
    visible = torch.ones(5, 5, dtype=torch.bool)
    visible[2] = False
    out = attend(q, k, v, mask=visible, engine="sdpa")
    assert isinstance(out, Tensor)
    assert bool((out[:, :, 2] == 0).all())


TABLE = torch.zeros(5)
REASONS: list[tuple[dict[str, Any], str]] = [
    ({"score": scores.Cosine()}, "torch computes q·k·scale only, not Cosine()"),
    ({"score": scores.SoftCapped(scores.Dot(), 2.0)}, "torch computes q·k·scale only, not SoftCapped(Dot(), 2.0)"),
    ({"normalizer": normalizers.Hard()}, "torch has a plain softmax only, not Hard()"),
    ({"normalizer": normalizers.Softmax(0.5)}, "torch has a plain softmax only, not Softmax(sink=0.5)"),
    ({"temperature": torch.ones(2)}, "torch takes its scale as one number, not a temperature as a tensor"),
    ({"dropout": Dropout(0.1, 3)}, "torch draws another dropout pattern"),
    ({"aux": ("lse", "peak")}, "torch returns the output only, not lse, peak"),
    ({"bias": biases.ALiBi(2)}, "torch takes a bias as a dense tensor only, not ALiBi(2)"),
    ({"bias": biases.Distance(TABLE)}, f"torch takes a bias as a dense tensor only, not {biases.Distance(TABLE)}"),
    ({"mask": masks.Window(3, 0)}, "torch takes a mask as a dense tensor only, not Window(3, 0)"),
    ({"mask": "causal", "bias": torch.zeros(5, 5)}, "torch takes a causal flag or a dense bias, not both"),
    (
        {"mask": "causal", "query_start": 2},
        "torch's causal rule starts at the top left, the queries here do not stand at 0",
    ),
]


@pytest.mark.parametrize(("spec", "reason"), REASONS, ids=[reason for _, reason in REASONS])
def test_what_it_does_not_take_it_says(spec: dict[str, Any], reason: str) -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 4)
    for function in (attend, plan):
        with pytest.raises(ValueError, match="engine 'sdpa' cannot do this") as raised:
            function(q, k, v, **spec, engine="sdpa")
        assert reason in str(raised.value)
    assert plan(q, k, v, **spec).reasons["sdpa"] == f"It cannot do this: {reason}."
