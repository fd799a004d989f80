"""A query that sees no key, and sizes of zero: zeros everywhere, in results and gradients, never NaN."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import attend, masks
from regard.engine.request import AUX
from regard.testing import BIASES, MASKS, NORMALIZERS, SCORES, Case, Sizes, mechanisms, small_tiles

ENGINES = ["reference", "tiled", "native"]


def statistics(case: Case) -> tuple[str, ...]:
    """The names that the normalizer has."""
    return AUX if case.normalizer in ("softmax", "sink", "zero sink") else tuple(name for name in AUX if name != "lse")


def empty_rows(case: Case) -> Tensor:
    """All queries of batch row 0 in head 0, and some of every other head, (batch, head, query)."""
    size = case.sizes
    rows = torch.rand((size.batch, size.heads, size.queries), generator=torch.Generator().manual_seed(2)) < 0.4
    rows[0, 0] = True
    return rows


def same(actual: Tensor, expected: Tensor, what: object) -> None:
    """Equal and free of NaN."""
    assert actual.shape == expected.shape, what
    assert not actual.isnan().any(), what
    assert torch.equal(actual, expected), what


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", mechanisms(), ids=str)
def test_a_query_that_sees_no_key(case: Case, engine: str) -> None:
    inputs, spec, leaves = case.build(torch.float32)
    rows = empty_rows(case)
    spec["mask"] = spec["mask"] & masks.Dense(~rows.unsqueeze(-1))
    names = statistics(case)
    with small_tiles():
        out, aux = attend(*inputs, **spec, aux=names, engine=engine)
        found = {name: getattr(aux, name) for name in names}
        for name, right in {
            "entropy": 0.0,
            "peak": 0.0,
            "peak_at": -1,
            "distance": 0.0,
            "max_logit": -torch.inf,
        }.items():
            assert (found[name][rows] == right).all(), name
        assert (out[rows] == 0).all()
        assert (found["received"][0, 0] == 0).all()
        if "lse" in names:
            sink = {"softmax": torch.tensor(-torch.inf), "zero sink": torch.tensor(0.0)}.get(case.normalizer)
            wanted = leaves["sink"].view(1, -1, 1) if sink is None else sink
            same(found["lse"][rows], wanted.expand_as(found["lse"])[rows], "lse")

        outputs = [out, found["entropy"]]
        if case.normalizer == "softmax":  # with a sink, the lse of an empty row is the sink and depends on it
            outputs.append(found["lse"])
        upstream = [torch.randn(tensor.shape, generator=torch.Generator().manual_seed(3)) for tensor in outputs]
        runs = []
        for number in (0.0, torch.nan, torch.inf):
            for grad in upstream:
                grad[rows] = number
            live = [(tensor, grad) for tensor, grad in zip(outputs, upstream, strict=True) if tensor.requires_grad]
            runs.append(
                torch.autograd.grad(
                    [tensor for tensor, _ in live],
                    list(leaves.values()),
                    [grad for _, grad in live],
                    materialize_grads=True,
                    retain_graph=True,
                )
            )
    for name, *grads in zip(leaves, *runs, strict=True):
        for grad in grads[1:]:
            same(grad, grads[0], name)
    assert (runs[0][0][rows] == 0).all()


SIZES = {
    "batch": Sizes(batch=0),
    "heads": Sizes(kv_heads=0),
    "queries": Sizes(queries=0),
    "keys": Sizes(keys=0),
    "queries and keys": Sizes(queries=0, keys=0),
    "query and key width": Sizes(d_key=0),
    "value width": Sizes(d_value=0),
    "everything": Sizes(0, 0, 1, 0, 0, 0, 0, 0),
}
CASES = [
    *(Case(score=name, mask="causal") for name in SCORES),
    *(Case(mask=name) for name in MASKS),
    *(Case(bias=name) for name in BIASES),
    *(Case(normalizer=name, mask="window", temperature="per head", dropout=0.3) for name in NORMALIZERS),
]


# ALiBi(0) has no slopes and says so
ZERO = [(size, case) for size in SIZES for case in CASES if SIZES[size].heads or case.bias not in ("alibi", "sum")]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("size", "case"), ZERO, ids=str)
def test_sizes_of_zero(size: str, case: Case, engine: str) -> None:
    case = replace(case, sizes=SIZES[size])
    inputs, spec, leaves = case.build(torch.float32)
    names = statistics(case)
    with small_tiles():
        out, aux = attend(*inputs, **spec, aux=names, engine=engine)
        grads = torch.autograd.grad(out.sum(), list(leaves.values()), materialize_grads=True)
    wide = case.sizes
    assert out.shape == (wide.batch, wide.heads, wide.queries, wide.d_value)
    for name in names:
        length = wide.keys if name == "received" else wide.queries
        assert getattr(aux, name).shape == (wide.batch, wide.heads, length), name
        assert not getattr(aux, name).isnan().any(), name
    for leaf, grad in zip(leaves.values(), grads, strict=True):
        assert grad.shape == leaf.shape
        assert grad.isfinite().all()
    if wide.keys == 0:
        assert (out == 0).all()
        assert (torch.as_tensor(aux.peak_at) == -1).all()
        assert all((grad == 0).all() for grad in grads)


@pytest.mark.parametrize("engine", ENGINES)
def test_width_zero_means_equal_scores(engine: str) -> None:
    value = torch.randn(2, 3, 7, 5)
    spec: dict[str, Any] = {"aux": ("peak", "entropy"), "engine": engine}
    out, aux = attend(torch.ones(2, 3, 4, 0), torch.ones(2, 3, 7, 0), value, **spec)
    eps = torch.finfo(torch.float32).eps
    assert torch.allclose(out, value.mean(2, keepdim=True).expand_as(out), rtol=0, atol=8 * eps)
    assert torch.allclose(aux.peak, torch.full((2, 3, 4), 1 / 7), rtol=eps, atol=0)
    assert torch.allclose(aux.entropy, torch.full((2, 3, 4), 7.0).log(), rtol=2 * eps, atol=0)


def test_the_comparison_can_fail() -> None:
    with pytest.raises(AssertionError):
        same(torch.tensor([torch.nan]), torch.tensor([torch.nan]), "NaN")
    with pytest.raises(AssertionError):
        same(torch.tensor([0.0]), torch.tensor([1e-45]), "tiny")
