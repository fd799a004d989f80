"""Forms: every rectangle of a score or bias equals the same rectangle of its definition."""

import pytest
import torch

from regard.spec.forms import Form, unit
from regard.spec.plane import Pairs, Plane
from regard.testing import BIASES, SCORES, Case, error

EPS = torch.finfo(torch.float64).eps


def evaluated(form: Form, pairs: Pairs) -> torch.Tensor:
    cut = (one.tensor if one.axis == "captured" else one.cut(one.tensor, pairs) for one in form.operands)
    return form.evaluate(pairs, None, tuple(cut))


def plane_of(case: Case) -> Plane:
    size = case.sizes
    start = torch.tensor([size.query_start])
    return Plane(size.batch, size.kv_heads, size.group, size.queries, size.keys, start)


@pytest.mark.parametrize("name", SCORES)
def test_a_rectangle_of_a_score(name: str) -> None:
    case = Case(score=name)
    (query, key, _), spec, _ = case.build()
    plane = plane_of(case)
    rows, columns = slice(2, 9), slice(3, 13)
    query, key = query.unflatten(1, (plane.kv_heads, plane.group)), key.unsqueeze(2)
    form = spec["score"].lower(query, key)
    whole = spec["score"].formula(query, key, plane.all)
    part = evaluated(form, plane.pairs(rows, columns)).expand(*whole.shape[:3], 7, 10)
    assert error(part, whole[..., rows, columns]) <= 64 * EPS * float(whole.detach().abs().max())
    assert form.flops(plane.pairs(rows, columns)) > 0
    assert form.tile_width >= 1


@pytest.mark.parametrize("name", sorted(set(BIASES) - {"none", "sum"}))
def test_a_rectangle_of_a_bias(name: str) -> None:
    case = Case(bias=name)
    _, spec, _ = case.build()
    plane = plane_of(case)
    rows, columns = slice(2, 9), slice(3, 13)
    bias = spec["bias"]
    size = (plane.batch, plane.kv_heads, plane.group, plane.queries, plane.keys)
    whole = bias.values(plane.all).expand(size)
    part = evaluated(bias.lower(plane, torch.float64), plane.pairs(rows, columns))
    assert torch.equal(part.expand(*size[:3], 7, 10), whole[..., rows, columns].double())


def test_unit_vectors_of_huge_tiny_and_zero_vectors() -> None:
    x = torch.tensor([[3e300, 4e300], [3e-300, 4e-300], [0.0, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[0.6, 0.8], [0.6, 0.8], [0.0, 0.0]], dtype=torch.float64)
    assert error(unit(x), expected) <= 4 * EPS
