"""Relative: Shaw's keys and Transformer-XL by hand, clipped offsets, and what is refused."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from regard.spec.plane import Plane
from regard.spec.scores import Relative


def dot(left: list[float], right: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(left, right, strict=True))


def plus(left: list[float], right: list[float]) -> list[float]:
    return [x + y for x, y in zip(left, right, strict=True)]


@pytest.mark.parametrize("start", [-4, 0, 2, 30])
def test_shaw(start: int, make_inputs: Any) -> None:
    inputs = make_inputs(start=start)
    keys = inputs.draw(7, 5, seed=2)

    def number(q: list[float], k: list[float], h: int, i: int, j: int) -> float:
        return dot(q, plus(k, keys[min(max(i - j, -3), 3) + 3].tolist()))

    inputs.agrees(Relative(keys), number)


def test_transformer_xl(inputs: Any) -> None:
    keys, u, v = inputs.draw(6, 9, 5, seed=2), inputs.draw(6, 5, seed=3), inputs.draw(5, seed=4)

    def number(q: list[float], k: list[float], h: int, i: int, j: int) -> float:
        place = keys[h, min(max(i - j, -4), 4) + 4].tolist()
        return (dot(plus(q, u[h].tolist()), k) + dot(plus(q, v.tolist()), place)) / math.sqrt(5)

    inputs.agrees(Relative(keys, u, v, None), number)


def test_batch_rows_that_start_at_different_places(inputs: Any) -> None:
    score = Relative(inputs.draw(5, 5, seed=2))
    plane = Plane(2, 2, 3, 7, 11, torch.tensor([3, -2]))
    found = score.formula(inputs.query, inputs.key, plane.all)
    form = score.lower(inputs.query, inputs.key)
    tile = plane.pairs(slice(2, 6), slice(3, 9))
    cut = form.evaluate(tile, None, tuple(one.cut(one.tensor, tile) for one in form.operands))
    bound = 64 * torch.finfo(torch.float64).eps * float(found.abs().max())
    assert float((cut - found[..., 2:6, 3:9]).abs().max()) <= bound
    for row, start in enumerate((3, -2)):
        alone = Plane(1, 2, 3, 7, 11, torch.tensor([start]))
        one = score.formula(inputs.query[row : row + 1], inputs.key[row : row + 1], alone.all)
        assert float((found[row : row + 1] - one).abs().max()) <= bound


def test_a_table_of_one_row_is_a_bias_of_the_query(inputs: Any) -> None:
    keys = inputs.draw(1, 5, seed=2)
    inputs.agrees(Relative(keys), lambda q, k, h, i, j: dot(q, plus(k, keys[0].tolist())))


def test_parameters_form_and_work() -> None:
    keys, u = torch.zeros(7, 5), torch.zeros(5)
    assert set(Relative(keys, u).parameters) == {"keys", "u"}
    assert Relative(keys).form == "relative"
    assert Relative(keys).positional
    assert Relative(keys).flops(5, 5) == 20
    assert repr(Relative(keys, u)) == "Relative(<7×5 float32>, u=[0.0, 0.0, 0.0, 0.0, 0.0])"


FAILURES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: Relative([1.0]), TypeError, "Relative's keys must be a torch.Tensor, got list"),  # type: ignore[arg-type]
    (lambda: Relative(torch.zeros(7, 5), u=3.0), TypeError, "Relative's u must be a torch.Tensor, got float"),  # type: ignore[arg-type]
    (lambda: Relative(torch.zeros(7, 5), scale=float("nan")), ValueError, "Relative's scale must be finite, got nan"),
    (lambda: Relative(torch.zeros(6, 5)).check(5, 5, 2, 3), ValueError, "an odd number of rows, got 6; the middle row"),
    (
        lambda: Relative(torch.zeros(7, 4)).check(5, 5, 2, 3),
        ValueError,
        "keys must have the keys' width 5, got shape (7, 4)",
    ),
    (lambda: Relative(torch.zeros(7, 5)).check(5, 4, 2, 3), ValueError, "query has 5, key has 4"),
    (
        lambda: Relative(torch.zeros(2, 7, 5)).check(5, 5, 2, 3),
        ValueError,
        "Relative's keys must have 2 axes, or 3 with one entry for each of the 6 query heads, got shape (2, 7, 5)",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), FAILURES)
def test_what_is_refused(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()
