"""Axes are followed through views by their strides, and through products by the letters of an einsum."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.inspection.hooks.axes import (
    COLUMN,
    FEATURE,
    ROW,
    Product,
    arranged,
    axes_of,
    broadcast,
    layout_of,
    merged,
    product_of,
    resized,
    richer,
)

BATCH, LENGTH, HEADS, SIZE = 2, 7, 3, 5
TOKENS, FEATURES = ((BATCH * LENGTH, 0),), ((HEADS * SIZE, FEATURE),)


@pytest.fixture
def linear() -> Tensor:
    """(token, feature), as a linear layer makes it."""
    return torch.arange(BATCH * LENGTH * HEADS * SIZE, dtype=torch.float32).view(BATCH * LENGTH, HEADS * SIZE)


def test_views_are_split_and_merged_by_their_strides(linear: Tensor) -> None:
    layout = layout_of(linear, (TOKENS, FEATURES))
    assert layout == ((HEADS * SIZE, 0), (1, FEATURE))
    heads = linear.view(BATCH, LENGTH, HEADS, SIZE)
    head, size = ((HEADS, FEATURE),), ((SIZE, FEATURE),)
    assert axes_of(heads, layout) == (((BATCH, 0),), ((LENGTH, 0),), head, size)
    assert axes_of(heads.permute(0, 2, 3, 1), layout) == (((BATCH, 0),), head, size, ((LENGTH, 0),))
    assert axes_of(heads[:, 2:4, :, :1], layout) == (((BATCH, 0),), ((2, 0),), head, ())
    folded = linear.view(LENGTH, BATCH * HEADS, SIZE)  # as of tokens (length, batch)
    assert axes_of(folded, layout) == (((LENGTH, 0),), ((BATCH, 0), (HEADS, FEATURE)), size)
    assert axes_of(linear.unsqueeze(0).expand(4, -1, -1), layout) == (((4, 0),), TOKENS, FEATURES)
    assert axes_of(linear.view(-1)[: 13 * 4].view(4, 13), layout) is None  # skewed: no axis is a piece of another


def test_copies_have_layouts_of_their_own(linear: Tensor) -> None:
    layout = layout_of(linear, (TOKENS, FEATURES))
    swapped = linear.view(BATCH, LENGTH, HEADS, SIZE).transpose(1, 2)
    axes = axes_of(swapped, layout)
    assert axes is not None
    copy = swapped.reshape(BATCH * HEADS, LENGTH, SIZE)
    expected = (((BATCH, 0), (HEADS, FEATURE)), ((LENGTH, 0),), ((SIZE, FEATURE),))
    assert axes_of(copy, merged(axes, copy)) == expected
    assert axes_of(copy, layout_of(copy, expected)) == expected
    assert layout_of(copy, (((6, 0),), ((LENGTH, 0),), ((SIZE, 0),))) is None
    back = arranged(copy, expected, lambda axis, mark: axis + 1 if axis else int(bool(mark)))
    assert torch.equal(back, swapped)


def test_other_sizes() -> None:
    axes = (((2, 0), (3, FEATURE)), ((7, ROW),), ())
    assert resized(axes, (6, 9, 1)) == (((2, 0), (3, FEATURE)), ((9, ROW),), ())
    assert resized(axes, (5, 1, 4)) == (((5, 0),), (), ((4, 0),))
    assert broadcast(axes, (8, 6, 7, 4)) == (((8, 0),), ((2, 0), (3, FEATURE)), ((7, ROW),), ((4, 0),))
    assert broadcast(axes, (6, 7)) is None
    assert richer(((6, 0),), ((2, 0), (3, FEATURE))) == ((2, 0), (3, FEATURE))
    assert richer((), ((6, 0),)) == ((6, 0),)


@pytest.mark.parametrize(
    ("name", "args", "shapes", "expected"),
    [
        ("bmm", (), [(2, 3, 4), (2, 4, 5)], ("Axy", "Ayz", "Axz")),
        ("mm", (), [(3, 4), (4, 5)], ("xy", "yz", "xz")),
        ("mv", (), [(3, 4), (4,)], ("xy", "y", "x")),
        ("matmul", (), [(7, 2, 3, 4), (2, 4, 5)], ("ABxy", "Byz", "ABxz")),
        ("matmul", (), [(4,), (2, 4, 5)], ("y", "Ayz", "Az")),
        ("linear", (), [(2, 3, 4), (5, 4)], ("ABy", "zy", "ABz")),
        ("cdist", (), [(2, 3, 4), (2, 5, 4)], ("Axy", "Azy", "Axz")),
        ("einsum", ("b i d, bjd -> bij",), [(2, 3, 4), (2, 5, 4)], ("bid", "bjd", "bij")),
        ("einsum", ("...id,...jd->...ij",), [(2, 3, 4), (2, 5, 4)], ("αid", "αjd", "αij")),
        ("einsum", ("ij,jk",), [(2, 3), (3, 5)], ("ij", "jk", "ik")),
        ("einsum", ("ii,ij->j",), [(3, 3), (3, 5)], None),
        ("einsum", ("i,j,k->ijk",), [(3,), (3,)], None),
        ("convolution", (), [(2, 3, 4), (5, 3, 1)], None),
    ],
)
def test_letters_of_products(name: str, args: Any, shapes: list[tuple[int, ...]], expected: Any) -> None:
    product = product_of(name, args, [torch.zeros(shape) for shape in shapes])
    assert product == (None if expected is None else Product(*expected))


def test_axes_of_products() -> None:
    product = Product("Axy", "Ayz", "Axz")
    first = (((2, 0), (3, FEATURE)), ((7, 0),), ((5, FEATURE),))
    second = (((6, 0),), ((5, FEATURE),), ((11, FEATURE),))
    scores = product.axes(first, second, None)
    assert scores == (((2, 0), (3, FEATURE)), ((7, ROW),), ((11, FEATURE | COLUMN),))
    assert product.contracted(0) == [2]
    assert product.contracted(1) == [1]
    talking = Product("bhij", "gh", "bgij")
    given = (((2, 0),), ((3, FEATURE),), ((7, ROW),), ((11, COLUMN),))
    assert talking.axes(given, (((4, 0),), ((3, 0),)), 1) == (((2, 0),), ((4, FEATURE),), ((7, ROW),), ((11, COLUMN),))
