"""sdpa means exactly what torch's function means: names, shapes, values, gradients, edges, in float64."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from regard import sdpa
from regard.testing import error

ULP = torch.finfo(torch.float64).eps


@pytest.fixture(autouse=True)
def math_backend() -> Iterator[None]:
    with sdpa_kernel(SDPBackend.MATH):
        yield


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def three(*shapes: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = (draw(*shape, seed=at) for at, shape in enumerate(shapes))
    return query, key, value


def same(query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> Tensor:
    """Values and gradients agree with torch's; the result is ours."""
    leaves = [tensor for tensor in (query, key, value, *args, *options.values()) if isinstance(tensor, Tensor)]
    leaves = [tensor for tensor in leaves if tensor.requires_grad]
    found = []
    for function in (sdpa, scaled_dot_product_attention):
        out = function(query, key, value, *args, **options)
        weight = torch.linspace(-1.0, 2.0, out.numel(), dtype=out.dtype).view_as(out)
        found.append([out, *torch.autograd.grad((out * weight).sum(), leaves)])
    for ours, theirs in zip(*found, strict=True):
        assert error(ours, theirs) <= 64 * ULP * (1.0 + float(theirs.detach().abs().amax()) if theirs.numel() else 1.0)
    return found[0][0]


def test_names_order_and_defaults_are_torchs() -> None:
    doc = scaled_dot_product_attention.__doc__
    assert doc is not None
    listed = re.match(r"scaled_dot_product_attention\((.*?)\) -> Tensor", doc.replace("\n", " "))
    assert listed is not None
    theirs = [part.strip() for part in listed[1].split(",")]
    ours = [
        name if parameter.default is parameter.empty else f"{name}={parameter.default}"
        for name, parameter in inspect.signature(sdpa).parameters.items()
    ]
    assert ours == theirs
    assert {parameter.kind for parameter in inspect.signature(sdpa).parameters.values()} == {
        inspect.Parameter.POSITIONAL_OR_KEYWORD
    }


SHAPES = {
    "2-D": ((5, 3), (7, 3), (7, 4)),
    "3-D": ((2, 5, 3), (2, 7, 3), (2, 7, 4)),
    "4-D": ((2, 3, 5, 3), (2, 3, 7, 3), (2, 3, 7, 4)),
    "5-D": ((2, 3, 2, 5, 3), (2, 3, 2, 7, 3), (2, 3, 2, 7, 4)),
    "batch of one query": ((1, 3, 5, 3), (2, 3, 7, 3), (2, 3, 7, 4)),
    "batch of one key": ((2, 3, 5, 3), (1, 3, 7, 3), (1, 3, 7, 4)),
    "two batch axes that cross": ((2, 1, 2, 5, 3), (1, 3, 2, 7, 3), (2, 3, 2, 7, 4)),
    "one query head": ((2, 1, 5, 3), (2, 3, 7, 3), (2, 3, 7, 4)),
    "one key head": ((2, 3, 5, 3), (2, 1, 7, 3), (2, 3, 7, 4)),
    "one value head": ((2, 3, 5, 3), (2, 3, 7, 3), (2, 1, 7, 4)),
    "one key and value head": ((2, 3, 5, 3), (2, 1, 7, 3), (2, 1, 7, 4)),
    "2-D query, 3-D keys": ((5, 3), (2, 7, 3), (2, 7, 4)),
    "4-D query, 3-D keys": ((2, 3, 5, 3), (3, 7, 3), (3, 7, 4)),
    "3-D query, 4-D keys": ((3, 5, 3), (2, 3, 7, 3), (2, 3, 7, 4)),
    "no query": ((2, 0, 3), (2, 7, 3), (2, 7, 4)),
    "no key": ((2, 5, 3), (2, 0, 3), (2, 0, 4)),
    "no width": ((2, 5, 0), (2, 7, 0), (2, 7, 4)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    inputs = three(*SHAPES[name])
    same(*inputs)
    same(*inputs, is_causal=True)
    same(*inputs, scale=0.7)


@pytest.mark.parametrize(("queries", "keys"), [(3, 7), (7, 7), (9, 7)])
def test_causal_counts_from_the_top_left(queries: int, keys: int) -> None:
    query, key, value = draw(2, queries, 4), draw(2, keys, 4), draw(2, keys, 5)
    out = same(query, key, value, None, 0.0, True)
    torch.testing.assert_close(out[:, 0], value[:, 0])


@pytest.mark.parametrize("scale", [None, 1.0, 0.0, -0.4, 3])
def test_scale(scale: float | None) -> None:
    same(draw(2, 3, 5, 4), draw(2, 3, 7, 4), draw(2, 3, 7, 6), scale=scale)


@pytest.mark.parametrize("query_heads", [2, 6])
def test_grouped_heads(query_heads: int) -> None:
    same(draw(2, query_heads, 5, 4), draw(2, 2, 7, 4), draw(2, 2, 7, 6), enable_gqa=True)
    same(draw(query_heads, 5, 4), draw(2, 7, 4), draw(2, 7, 6), is_causal=True, enable_gqa=True)


@pytest.mark.parametrize(("key_heads", "value_heads"), [(2, 3), (1, 3), (6, 2), (1, 1)])
def test_grouped_heads_of_key_and_value_may_differ(key_heads: int, value_heads: int) -> None:
    same(draw(2, 6, 5, 4), draw(2, key_heads, 7, 4), draw(2, value_heads, 7, 5), enable_gqa=True)


MASK_SHAPES: dict[str, list[tuple[int, ...]]] = {
    "2-D": [(), (7,), (1,), (5, 7), (5, 1), (1, 7)],
    "3-D": [(7,), (5, 7), (5, 1), (1, 7), (2, 5, 7), (1, 5, 7), (2, 1, 7), (2, 5, 1)],
    "4-D": [(5, 7), (3, 5, 7), (2, 3, 5, 7), (2, 1, 5, 7), (1, 3, 5, 7), (2, 1, 1, 7), (1, 1, 5, 1)],
    "5-D": [(5, 7), (2, 5, 7), (3, 2, 5, 7), (3, 1, 1, 7), (2, 3, 2, 5, 7), (2, 1, 1, 5, 7), (1, 3, 1, 1, 7)],
}


@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name in MASK_SHAPES for shape in MASK_SHAPES[name]])
def test_masks_broadcast(name: str, shape: tuple[int, ...]) -> None:
    inputs = three(*SHAPES[name])
    added = draw(*shape, seed=9)
    same(*inputs, added)
    same(*inputs, attn_mask=added.detach().float())
    same(*inputs, added.detach() > -0.5)
    same(*inputs, torch.where(added > -0.5, added, -torch.inf).detach(), scale=1.3)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_rows_without_a_key_are_zero(kind: str) -> None:
    visible = torch.ones(5, 7, dtype=torch.bool)
    visible[1] = visible[4] = False
    mask = visible if kind == "bool" else torch.zeros(5, 7, dtype=torch.float64).masked_fill(~visible, -torch.inf)
    out = same(draw(2, 5, 4), draw(2, 7, 4), draw(2, 7, 6), mask)
    assert bool((out[:, [1, 4]] == 0).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_precision_of_the_result_is_that_of_the_query(dtype: torch.dtype) -> None:
    query, key, value = (tensor.detach().to(dtype) for tensor in three(*[(2, 3, 9, 8)] * 3))
    out = sdpa(query, key, value)
    truth = sdpa(query.double(), key.double(), value.double())
    assert out.dtype == dtype
    plain = scaled_dot_product_attention(query, key, value)
    assert error(out, truth) <= 2 * error(plain, truth) + torch.finfo(dtype).eps


def test_dropout_is_applied_as_given() -> None:
    """In training or not: the function does not know. What is kept is scaled, so the mean over seeds stays."""
    query, key, value = (tensor.detach() for tensor in three(*[(1, 2, 6, 4)] * 3))
    torch.manual_seed(0)
    runs = torch.stack([sdpa(query, key, value, dropout_p=0.3) for _ in range(2000)])
    plain = sdpa(query, key, value)
    assert not torch.equal(runs[0], runs[1])
    assert bool(((runs.mean(0) - plain).abs() < 5 * runs.std(0) / 2000**0.5).all())


def test_dropout_follows_torchs_generator() -> None:
    inputs = three(*[(1, 2, 6, 4)] * 3)
    torch.manual_seed(3)
    first = sdpa(*inputs, dropout_p=0.5)
    torch.manual_seed(3)
    assert torch.equal(sdpa(*inputs, dropout_p=0.5), first)


def test_dropping_everything_leaves_zeros() -> None:
    same(draw(2, 5, 4), draw(2, 7, 4), draw(2, 7, 6), dropout_p=1.0)


@pytest.mark.parametrize(
    ("shapes", "options", "kind", "text"),
    [
        ([(3,), (3,), (3,)], {}, ValueError, r"query must have at least 2 axes, \(length, width\), got shape \(3,\)"),
        (
            [(2, 5, 3), (2, 7, 3), (2, 7, 3)],
            {"attn_mask": torch.ones(5, 7, dtype=torch.bool), "is_causal": True},
            ValueError,
            "attn_mask or is_causal, not both",
        ),
        (
            [(2, 5, 3), (2, 7, 3), (2, 7, 3)],
            {"attn_mask": torch.ones(5, 7, dtype=torch.int64)},
            TypeError,
            r"attn_mask must be bool \(True = visible\) or float \(added to the scores\), got int64",
        ),
        ([(2, 6, 5, 3), (2, 2, 7, 3), (2, 2, 7, 3)], {}, ValueError, "6, 2 and 2 heads; pass enable_gqa=True"),
        (
            [(2, 6, 5, 3), (2, 4, 7, 3), (2, 4, 7, 3)],
            {"enable_gqa": True},
            ValueError,
            "must divide the query's 6, got 4 and 4",
        ),
        ([(2, 5, 3), (2, 7, 4), (2, 7, 4)], {}, ValueError, "widths must be equal: query has 3, key has 4"),
        ([(2, 5, 3), (2, 7, 3), (2, 8, 3)], {}, ValueError, "key and value must have the same length"),
        ([(2, 5, 3), (2, 7, 3), (2, 7, 3)], {"dropout_p": 1.5}, ValueError, "at least 0 and below 1, got 1.5"),
        ([(2, 5, 3), (2, 7, 3), (2, 7, 3)], {"attn_mask": torch.zeros(7, 5)}, ValueError, "transpose it"),
    ],
    ids=lambda value: "" if not isinstance(value, str) else value[:20],
)
def test_wrong_calls(shapes: list[tuple[int, ...]], options: dict[str, Any], kind: type[Exception], text: str) -> None:
    inputs = three(*shapes)
    with pytest.raises(kind, match=text):
        sdpa(*inputs, **options)
