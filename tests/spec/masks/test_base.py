"""Laws that hold for every mask: logic, tiles, positions; and how masks print, compare and count."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy
from torch import Tensor

from regard.spec import masks
from regard.spec.masks import And, Mask, Not, Or
from regard.spec.plane import Pairs, Plane

Seen = Callable[[Mask, Pairs], Tensor]
Cases = SearchStrategy[tuple[Mask, Plane]]
Compositions = Callable[..., SearchStrategy[Mask]]

causal, window, prefix = masks.Causal(), masks.Window(3, 0), masks.Prefix(2)


@settings(max_examples=60)
@given(data=st.data())
def test_logic(planes: SearchStrategy[Plane], compositions: Compositions, seen: Seen, data: DataObject) -> None:
    plane = data.draw(planes)
    left, right = (data.draw(compositions(plane, 2)) for _ in range(2))

    def same(one: Mask, other: Mask) -> bool:
        return torch.equal(seen(one, plane.all), seen(other, plane.all))

    assert same(~(left & right), ~left | ~right)
    assert same(~(left | right), ~left & ~right)
    assert same(~~left, left)
    assert same(left & ~left, ~masks.Full())
    assert same(left & right, right & left)
    assert same(left | masks.Full(), masks.Full())


@settings(max_examples=100)
@given(data=st.data())
def test_a_tile_is_a_part_of_the_whole(cases: Cases, seen: Seen, data: DataObject) -> None:
    mask, plane = data.draw(cases)
    rows, columns = (
        slice(*sorted(data.draw(st.integers(0, length)) for _ in range(2))) for length in (plane.queries, plane.keys)
    )
    assert torch.equal(seen(mask, plane.pairs(rows, columns)), seen(mask, plane.all)[..., rows, columns])


@settings(max_examples=150)
@given(data=st.data())
def test_positional_masks_say_so(cases: Cases, seen: Seen, data: DataObject) -> None:
    mask, plane = data.draw(cases)
    moved = replace(plane, starts=plane.starts + data.draw(st.integers(-9, 9)))
    try:
        mask.check(moved)
    except ValueError:
        assume(False)
    assert mask.positional or torch.equal(seen(mask, moved.all), seen(mask, plane.all))


def test_masks_that_do_not_look_at_query_positions() -> None:
    table = torch.ones(3, 5, dtype=torch.bool)
    for mask in (
        masks.Full(),
        masks.Window(None, None),
        masks.Prefix(3),
        masks.Lengths([3]),
        masks.Dense(table),
        masks.RowWhere(lambda b, h, i, j: j <= i),
        ~masks.Prefix(3) & masks.Dense(table),
    ):
        assert not mask.positional
    for mask in (masks.Prefix(3) | masks.Causal(), masks.Window(None, 0), masks.Window(0, None), masks.Global([0])):
        assert mask.positional


@pytest.mark.parametrize(
    "mask, text",
    [
        (masks.Full(), "Full()"),
        (causal & window, "Causal() & Window(3, 0)"),
        (masks.Window(None, -1), "Window(None, -1)"),
        (masks.Dilated(5, 2), "Dilated(5, 2)"),
        (masks.Global([7, 0, 7]), "Global([0, 7])"),
        (masks.Prefix(torch.tensor([3, 5])), "Prefix([3, 5])"),
        (masks.Lengths([3, 5]), "Lengths([3, 5])"),
        (masks.Documents([0, 0, 1]), "Documents([0, 0, 1])"),
        (masks.Documents([0, 1], [1, 0, 2]), "Documents([0, 1], query_ids=[1, 0, 2])"),
        ((causal | prefix) & window, "(Causal() | Prefix(2)) & Window(3, 0)"),
        ((causal & window) | prefix, "(Causal() & Window(3, 0)) | Prefix(2)"),
        (causal & window & prefix, "Causal() & Window(3, 0) & Prefix(2)"),
        (causal & (window & prefix), "Causal() & (Window(3, 0) & Prefix(2))"),
        (~causal, "~Causal()"),
        (~(causal | ~prefix), "~(Causal() | ~Prefix(2))"),
    ],
)
def test_text_reads_back_as_the_same_mask(mask: Mask, text: str) -> None:
    assert repr(mask) == str(mask) == text
    assert eval(text, vars(masks)) == mask


def test_text_of_what_cannot_be_written_out() -> None:
    table = torch.ones(3, 5, dtype=torch.bool)
    assert repr(masks.Dense(table)) == "Dense(<3×5 bool>)"
    assert repr(masks.Blocks(4, table)) == "Blocks(4, <3×5 bool>)"
    assert repr(masks.Lengths(torch.arange(100))) == "Lengths(<100 int64>)"
    assert repr(masks.Where(diagonal)) == "Where(diagonal)"
    assert repr(masks.RowWhere(lambda b, h, i, j: i == j)) == "RowWhere(<lambda>)"


def diagonal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i == j


def test_equality_is_by_content_and_hash_by_identity() -> None:
    def build(last: int) -> Mask:
        return (masks.Causal() | masks.Lengths(torch.tensor([3, last]))) & ~masks.Where(diagonal)

    assert build(5) == build(5)
    assert build(5) != build(7)
    assert hash(build(5)) != hash(build(5))
    assert masks.Causal() != masks.Full()
    assert causal & window != causal | window
    assert causal & window != window & causal
    assert masks.Prefix(3) != masks.Prefix(torch.tensor([3])), "one fits any batch, the other says it has one row"
    assert masks.Dense(torch.ones(3, 5, dtype=torch.bool)) != masks.Dense(torch.ones(5, 3, dtype=torch.bool))
    assert masks.Causal() != "Causal()"


def test_masks_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        masks.Window(3, 0).before = 5  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        masks.Lengths([3]).lengths = torch.tensor([5])  # type: ignore[misc]


def test_and_or_not_are_three_things() -> None:
    """Code that takes masks apart must not mistake one for another."""
    assert not isinstance(causal | window, And)
    assert not isinstance(causal & window, Or)
    assert [type(leaf) for leaf in (~(causal & window) | Not(prefix)).leaves()] == [
        masks.Causal,
        masks.Window,
        masks.Prefix,
    ]


@pytest.mark.parametrize("join", [lambda other: causal & other, lambda other: causal | other])
def test_masks_combine_with_masks_only(join: Callable[[object], Mask]) -> None:
    text = r"masks combine with masks, got Tensor; wrap a bool tensor as masks\.Dense\(tensor\)"
    with pytest.raises(TypeError, match=text):
        join(torch.ones(3, 3, dtype=torch.bool))
    with pytest.raises(TypeError, match="got NoneType"):
        join(None)


def test_a_mask_of_ones_own_needs_visible_only() -> None:
    class Odd(Mask):
        def visible(self, pairs: Pairs) -> Tensor:
            return (pairs.i + pairs.j) % 2 == 1

    assert Odd().pairs(4) == 8
    assert (Odd() & causal).pairs(4) == 4
    with pytest.raises(NotImplementedError, match=r"Mask must define visible\(pairs\)"):
        Mask().pairs(4)


def test_pairs() -> None:
    assert causal.pairs(5) == 15
    assert causal.pairs(3, 5) == 3 + 4 + 5
    assert causal.pairs(3, 5, query_start=0) == 1 + 2 + 3
    assert causal.pairs(3, 5, query_start=-1) == 0 + 1 + 2
    assert causal.pairs(3, 5, query_start=torch.tensor([0, 2])) == (1 + 2 + 3) + (3 + 4 + 5)
    assert causal.pairs(5, batch=2, heads=3) == 15 * 6
    assert masks.Lengths([2, 5]).pairs(7) == 7 * 2 + 7 * 5
    assert masks.Lengths([2, 5]).pairs() == 5 * 2 + 5 * 5
    assert masks.Dense(torch.ones(2, 3, 5, 7, dtype=torch.bool)).pairs() == 2 * 3 * 5 * 7
    assert masks.Documents([0, 0, 1], [1, 0]).pairs() == 1 + 2


def test_show_prints(capsys: pytest.CaptureFixture[str]) -> None:
    def printed() -> str:
        return " ".join(capsys.readouterr().out.split())

    masks.Window(1, 0).show(3)
    text = printed()
    assert text.startswith("Window(1, 0) ")
    assert "5 of 9 pairs visible (55.6%)" in text
    masks.Causal().show()
    assert "136 of 256 pairs visible" in printed()
    masks.Lengths([2, 3]).show(batch_row=1)
    assert "shown: batch row 1 (of 0 to 1)" in printed()


def test_a_mask_is_neither_true_nor_false() -> None:
    for wrong in (lambda: masks.Causal() and masks.Full(), lambda: not masks.Causal()):
        with pytest.raises(TypeError, match="write & for and"):
            wrong()
