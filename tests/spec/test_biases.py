"""Biases: values by hand, any rectangle alone, gradients of every table, and what is refused."""

import math
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.spec.biases import T5, ALiBi, Bias, Dense, Distance, Total
from regard.spec.plane import Pairs, Plane

EPS = torch.finfo(torch.float64).eps
BATCH, KV_HEADS, GROUP, QUERIES, KEYS = 2, 2, 3, 7, 11
HEADS = KV_HEADS * GROUP


def plane(*starts: int) -> Plane:
    return Plane(BATCH, KV_HEADS, GROUP, QUERIES, KEYS, torch.tensor(starts))


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def by_hand(number: Callable[[int, int, int, int], float], where: Plane) -> Tensor:
    """number(b, h, i, j) for every pair, (batch, kv head, group, query, key)."""
    starts = where.starts.expand(BATCH).tolist()
    cells = [
        [[[number(b, h, starts[b] + row, j) for j in range(KEYS)] for row in range(QUERIES)] for h in range(HEADS)]
        for b in range(BATCH)
    ]
    return torch.tensor(cells, dtype=torch.float64).view(BATCH, KV_HEADS, GROUP, QUERIES, KEYS)


def whole(tensor: Tensor) -> Tensor:
    return tensor.expand(BATCH, KV_HEADS, GROUP, QUERIES, KEYS)


def bucket(offset: int, buckets: int, bidirectional: bool, most: int) -> int:
    """T5's bucket of key − query = −offset, as its paper's code computes it for one number."""
    base = 0
    if bidirectional:
        buckets //= 2
        base, distance = (buckets, -offset) if offset < 0 else (0, offset)
    else:
        distance = max(offset, 0)
    exact = buckets // 2
    if distance < exact:
        return base + distance
    far = exact + int(math.log(distance / exact) / math.log(most / exact) * (buckets - exact) + 1e-9)
    return base + min(far, buckets - 1)


TABLE, T5_TABLE, PER_HEAD, DENSE = draw(5), draw(8, HEADS), draw(HEADS, 7), draw(HEADS, QUERIES, KEYS)
CASES: dict[str, tuple[Bias, Callable[[int, int, int, int], float]]] = {
    "alibi": (ALiBi(HEADS), lambda b, h, i, j: -float(ALiBi(HEADS).slopes[h]) * abs(i - j)),
    "distance": (Distance(TABLE), lambda b, h, i, j: float(TABLE[min(max(i - j, -2), 2) + 2])),
    "distance per head": (Distance(PER_HEAD), lambda b, h, i, j: float(PER_HEAD[h, min(max(i - j, -3), 3) + 3])),
    "t5": (T5(T5_TABLE, True, 9), lambda b, h, i, j: float(T5_TABLE[bucket(i - j, 8, True, 9), h])),
    "t5 decoder": (T5(T5_TABLE, False, 9), lambda b, h, i, j: float(T5_TABLE[bucket(i - j, 8, False, 9), h])),
}
STARTS = [(0,), (4,), (-3,), (5, -6)]


@pytest.mark.parametrize("starts", STARTS)
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_by_hand(name: str, starts: tuple[int, ...]) -> None:
    bias, number = CASES[name]
    where = plane(*starts)
    bias.check(where)
    assert torch.equal(whole(bias.values(where.all)), by_hand(number, where))


def test_a_dense_bias_is_its_tensor() -> None:
    where = plane(3)
    assert torch.equal(whole(Dense(DENSE).values(where.all)), whole(DENSE.view(1, KV_HEADS, GROUP, QUERIES, KEYS)))
    row = draw(KEYS)
    assert torch.equal(whole(Dense(row).values(where.all)), whole(row))
    per_batch = draw(BATCH, 1, 1, KEYS)
    assert torch.equal(whole(Dense(per_batch).values(where.all)), whole(per_batch.unsqueeze(2)))


ALL: dict[str, Bias] = {name: bias for name, (bias, _) in CASES.items()} | {
    "dense": Dense(DENSE),
    "dense row": Dense(draw(KEYS)),
    "sum": ALiBi(HEADS) + Dense(DENSE) + Distance(TABLE),
}


def evaluated(bias: Bias, pairs: Pairs, dtype: torch.dtype = torch.float64) -> Tensor:
    """The bias through its forms, cut as an engine cuts them."""
    total = torch.zeros((), dtype=dtype)
    for term in bias.terms():
        form = term.lower(pairs.plane, dtype)
        total = total + form.evaluate(pairs, None, tuple(one.cut(one.tensor, pairs) for one in form.operands))
    return total


@pytest.mark.parametrize("starts", STARTS)
@pytest.mark.parametrize("name", ALL)
def test_any_rectangle_can_be_computed_alone(name: str, starts: tuple[int, ...]) -> None:
    where, bias = plane(*starts), ALL[name]
    values = whole(bias.values(where.all))
    for rows, columns in ((slice(0, 7), slice(0, 11)), (slice(2, 3), slice(5, 6)), (slice(4, 7), slice(0, 8))):
        found = evaluated(bias, where.pairs(rows, columns))
        right = values[..., rows, columns]
        assert float((found.expand_as(right) - right).abs().max()) <= 4 * EPS * 10


@pytest.mark.parametrize("make", [Distance, lambda table: T5(table.unsqueeze(-1).expand(-1, HEADS), False, 9)])
def test_a_table_gets_the_sum_of_what_its_pairs_get(make: Callable[[Tensor], Bias]) -> None:
    table = draw(7 if make is Distance else 6).requires_grad_()
    bias, where = make(table), plane(2)
    (grad,) = torch.autograd.grad(whole(bias.values(where.all)).sum(), table)
    (tiled,) = torch.autograd.grad(whole(evaluated(bias, where.all)).sum(), table)
    assert torch.equal(grad, tiled)
    assert float(grad.sum()) == BATCH * HEADS * QUERIES * KEYS


def test_slopes() -> None:
    assert ALiBi(8).slopes.tolist() == [2.0**-k for k in range(1, 9)]
    assert ALiBi(1).slopes.tolist() == [2.0**-8]
    six = ALiBi(6).slopes
    assert six.tolist() == [*ALiBi(4).slopes.tolist(), *ALiBi(8).slopes.tolist()[0:4:2]]
    assert six.dtype == torch.float64


def test_minus_infinity_is_noticed() -> None:
    table = draw(5)
    assert not Distance(table).hides
    table[0] = -torch.inf
    assert Distance(table).hides
    assert (ALiBi(2) + Distance(table)).hides
    assert Dense(torch.tensor([[0.0, -torch.inf]])).hides
    assert not Dense(torch.tensor([[0.0, torch.finfo(torch.float32).min]])).hides
    assert T5(torch.full((4, 2), -torch.inf)).hides
    assert not ALiBi(2).hides


def test_which_biases_look_at_positions() -> None:
    assert ALiBi(2).positional
    assert Distance(TABLE).positional
    assert T5(T5_TABLE).positional
    assert not Dense(DENSE).positional
    assert not (Dense(DENSE) + Dense(DENSE)).positional
    assert (Dense(DENSE) + ALiBi(6)).positional


def test_biases_print_compare_and_add() -> None:
    assert repr(ALiBi(4) + Distance(torch.zeros(3))) == "ALiBi(4) + Distance([0.0, 0.0, 0.0])"
    assert repr(T5(torch.zeros(32, 4), bidirectional=False)) == "T5(<32×4 float32>, bidirectional=False)"
    assert ALiBi(4) == ALiBi(4) != ALiBi(5)
    both = ALiBi(2) + Dense(DENSE) + Distance(TABLE)
    assert isinstance(both, Total)
    assert len(both.terms()) == 3


FAILURES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: ALiBi(0), ValueError, "ALiBi's heads must be at least 1, got 0"),
    (lambda: ALiBi(4.0), TypeError, "ALiBi's heads must be an int, got float"),  # type: ignore[arg-type]
    (lambda: ALiBi(4).check(plane(0)), ValueError, "ALiBi(4) has 4 slopes, the call has 6 query heads; write ALiBi(6)"),
    (lambda: Distance(torch.zeros(4)), ValueError, "(2R + 1,) or (heads, 2R + 1), offsets −R to R, got shape (4,)"),
    (lambda: Distance(torch.zeros(2, 2, 3)), ValueError, "got shape (2, 2, 3)"),
    (lambda: Distance([1.0]), TypeError, "Distance's table must be a torch.Tensor, got list"),  # type: ignore[arg-type]
    (lambda: Distance(torch.zeros(3).long()), TypeError, "Distance's table must be float32"),
    (lambda: Distance(torch.zeros(2, 3)).check(plane(0)), ValueError, "is for 2 heads, the call has 6; give one entry"),
    (lambda: T5(torch.zeros(5, 4)), ValueError, "(buckets, heads) with an even number of buckets, got (5, 4)"),
    (lambda: T5(torch.zeros(2, 4)), ValueError, "(buckets, heads) with an even number of buckets, got (2, 4)"),
    (lambda: T5(torch.zeros(32)), ValueError, "T5's table must be (buckets, heads)"),
    (lambda: T5(torch.zeros(32, 4), True, 8), ValueError, "T5's max_distance must be at least 9, got 8"),
    (lambda: T5(torch.zeros(32, 4).long()), TypeError, "T5's table must be float32"),
    (lambda: T5(torch.zeros(32, 4)).check(plane(0)), ValueError, "T5's table (buckets, heads) is for 4 heads"),
    (lambda: Dense(torch.ones(2, 2).bool()), TypeError, "got bool; a bool tensor is a mask: pass it as mask="),
    (lambda: Dense(torch.ones(2, 2).long()), TypeError, "takes a float tensor, got int64; convert it with .float()"),
    (lambda: Dense([[1.0]]), TypeError, "biases.Dense must be a torch.Tensor, got list"),  # type: ignore[arg-type]
    (lambda: Dense(torch.zeros(11, 7)).check(plane(0)), ValueError, "rows are queries and columns are keys: transpose"),
    (lambda: ALiBi(2) + torch.zeros(2), TypeError, "got Tensor; wrap a tensor as biases.Dense(tensor)"),  # type: ignore[operator]
]


@pytest.mark.parametrize(("call", "error", "text"), FAILURES)
def test_what_is_refused(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()
