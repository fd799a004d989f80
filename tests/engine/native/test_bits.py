"""The same bits: for any number of threads, any slice of the batch, heads and queries, and token by token."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import Dropout, attend, biases, masks, normalizers, scores
from regard.testing import BIASES, MASKS, PRODUCTS, SOFTMAXES, TEMPERATURES, Case, Sizes

NAMES = ("lse", "entropy", "peak", "peak_at", "distance", "max_logit")
LONG = Sizes(batch=2, kv_heads=2, group=2, queries=150, keys=700, d_key=24, d_value=40, query_start=550)


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def outcome(case: Case, aux: tuple[str, ...] = NAMES) -> list[Tensor]:
    """Output, statistics, and gradients of all leaves."""
    inputs, spec, leaves = case.build(torch.float32)
    out, more = attend(*inputs, **spec, aux=aux, engine="native")
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    loss = (out * weight).sum() + sum(getattr(more, name).nan_to_num(0, 0, 0).sum() for name in ("lse", "entropy"))
    grads = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    return [out.detach(), *(getattr(more, name).detach() for name in aux), *grads]


def same(left: list[Tensor], right: list[Tensor]) -> None:
    for one, other in zip(left, right, strict=True):
        assert not one.isnan().any()
        assert torch.equal(one, other)


products = st.builds(
    Case,
    score=st.sampled_from(PRODUCTS),
    mask=st.sampled_from(sorted(MASKS)),
    bias=st.sampled_from(sorted(BIASES)),
    normalizer=st.sampled_from(SOFTMAXES),
    temperature=st.sampled_from(sorted(TEMPERATURES)),
    dropout=st.sampled_from([0.0, 0.4]),
    sizes=st.builds(
        Sizes,
        batch=st.integers(1, 2),
        kv_heads=st.integers(1, 3),
        group=st.integers(1, 2),
        queries=st.sampled_from([1, 5, 60, 150]),
        keys=st.sampled_from([1, 70, 300, 1100]),
        d_key=st.sampled_from([8, 33, 64]),
        d_value=st.sampled_from([8, 50, 64]),
        query_start=st.integers(0, 700),
    ),
    seed=st.integers(0, 2**31),
)


@given(products)
@settings(max_examples=40)
def test_any_number_of_threads(case: Case) -> None:
    with threads(1):
        one = outcome(case)
    for number in (2, 3, 8):
        with threads(number):
            same(outcome(case), one)


def run(inputs: list[Tensor], **spec: Any) -> tuple[Tensor, ...]:
    query, key, value = (tensor.detach().clone().requires_grad_() for tensor in inputs)
    out, more = attend(query, key, value, aux=NAMES, engine="native", **spec)
    weight = torch.ones_like(out) / 3
    assert more.lse is not None
    assert more.entropy is not None
    (grad,) = torch.autograd.grad((out * weight).sum() + more.lse.sum() + more.entropy.sum(), query)
    return out.detach(), *(getattr(more, name).detach() for name in NAMES), grad


def matrices(*size: int) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(3)) / 5


SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": masks.Causal()},
    "window": {"mask": masks.Window(100, 3)},
    "alibi": {"mask": masks.Causal(), "bias": biases.ALiBi(4)},
    "distance": {"bias": biases.Distance(torch.linspace(-1, 1, 601))},
    "sink": {"normalizer": normalizers.Softmax(0.5), "temperature": 0.7},
    "blocks": {"mask": masks.Blocks(50, torch.rand(16, 16, generator=torch.Generator().manual_seed(0)) < 0.6)},
    "capped": {"mask": masks.Global([0, 300]) | masks.local(41)},
    "general": {"score": scores.General(matrices(24, 24))},
    "additive": {"score": scores.Additive(matrices(33, 24), matrices(33, 24), matrices(33)), "mask": masks.Causal()},
    "mlp": {"score": scores.ConcatMLP(matrices(20, 24), -matrices(20, 24), matrices(20), matrices(20), "relu")},
}


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_any_slice_of_batch_heads_and_queries(name: str, dtype: torch.dtype) -> None:
    inputs = [tensor.detach() for tensor in replace(Case(sizes=LONG)).build(torch.float64)[0]]
    query, key, value = (tensor.to(dtype) for tensor in inputs)
    spec, start = SPECS[name], LONG.query_start
    whole = run([query, key, value], **spec, query_start=start)
    for row in range(LONG.batch):
        part = run([query[row : row + 1], key[row : row + 1], value[row : row + 1]], **spec, query_start=start)
        same(list(part), [tensor[row : row + 1] for tensor in whole])
    if "bias" not in spec or name == "distance":
        part = run([query[:, 2:], key[:, 1:], value[:, 1:]], **spec, query_start=start)
        same(list(part), [tensor[:, 2:] for tensor in whole])
    for first, last in ((0, 1), (1, 50), (50, 149), (149, 150)):
        part = run([query[:, :, first:last], key, value], **spec, query_start=start + first)
        same(list(part), [tensor[:, :, first:last] for tensor in whole])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("number", [1, 2, 5])
def test_token_by_token_is_one_pass(dtype: torch.dtype, number: int) -> None:
    n = 530
    query = torch.randn(1, 4, n, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    key, value = torch.randn(2, 1, 1, n, 64, generator=torch.Generator().manual_seed(1)).to(dtype)
    with threads(number):
        whole = attend(query, key, value, mask="causal", engine="native")
        for at in (0, 1, 47, 48, 255, 256, 257, 500, n - 1):
            cache = key[:, :, : at + 1], value[:, :, : at + 1]
            step = attend(query[:, :, at : at + 1], *cache, mask="causal", engine="native")
            assert torch.equal(step, whole[:, :, at : at + 1])


@given(products)
@settings(max_examples=30)
def test_asking_for_more_changes_no_bit(case: Case) -> None:
    inputs, spec, _ = case.build(torch.float32)
    out = attend(*inputs, **spec, engine="native")
    for aux in (("lse",), ("peak_at",), NAMES, (*NAMES, "received")):
        assert torch.equal(attend(*inputs, **spec, aux=aux, engine="native")[0], out)


def test_no_mask_is_the_full_mask() -> None:
    query, key, value = torch.randn(3, 2, 4, 100, 32)
    full = attend(query, key, value, mask=masks.Full(), engine="native")
    assert torch.equal(attend(query, key, value, engine="native"), full)
    assert torch.equal(attend(query, key, value, mask=~~masks.Full(), engine="native"), full)
    assert torch.equal(attend(query, key, value, mask=torch.ones(100, 100, dtype=torch.bool), engine="native"), full)


def test_dropout_is_the_same_in_every_chunk() -> None:
    query, key, value = torch.randn(3, 1, 2, 300, 16)
    whole = attend(query, key, value, query_start=0, dropout=Dropout(0.3, 5), engine="native")
    part = attend(query[:, :, 100:220], key, value, query_start=100, dropout=Dropout(0.3, 5), engine="native")
    assert torch.equal(part, whole[:, :, 100:220])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("width", [16, 59, 64, 128, 200, 256, 512])
@pytest.mark.parametrize("group", [1, 2])
def test_a_few_queries_have_the_bits_of_many(width: int, group: int, dtype: torch.dtype) -> None:
    """Up to eight rows read keys where they lie, more read them packed; both sum in the same order."""
    draw = torch.Generator().manual_seed(width)
    query, key, value = (
        torch.randn((1, heads, length, width), generator=draw).to(dtype)
        for heads, length in ((2 * group, 60), (2, 601), (2, 601))
    )
    spec: dict[str, Any] = {"mask": masks.Causal() & masks.Window(500, 0), "score": scores.ScaledDot(0.1)}
    whole = attend(query, key, value, **spec, query_start=541, engine="native")
    for first, count in ((0, 1), (17, 2), (33, 3), (50, 4), (7, 8), (40, 20)):
        part = attend(query[:, :, first : first + count], key, value, **spec, query_start=541 + first, engine="native")
        assert torch.equal(part, whole[:, :, first : first + count]), (first, count)
