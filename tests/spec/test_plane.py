"""Planes, rectangles of them and row blocks: positions, axes and cuts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.spec.plane import Plane, split_heads

BATCH, KV_HEADS, GROUP, QUERIES, KEYS = 2, 3, 5, 7, 11
HEADS = KV_HEADS * GROUP


def plane(*starts: int, key_start: int = 0) -> Plane:
    return Plane(BATCH, KV_HEADS, GROUP, QUERIES, KEYS, torch.tensor(starts or [0]), key_start)


def test_indices_broadcast_to_every_pair() -> None:
    whole = plane(4, -9, key_start=3).all
    size = (BATCH, KV_HEADS, GROUP, QUERIES, KEYS)
    b, h, i, j = torch.broadcast_tensors(whole.b, whole.h, whole.i, whole.j)
    assert b.shape == h.shape == i.shape == j.shape == size
    assert [part[1, 2, 3, 4, 5].item() for part in (b, h, i, j)] == [1, 2 * GROUP + 3, -9 + 4, 3 + 5]
    assert plane().heads == HEADS


def test_one_start_keeps_the_indices_small() -> None:
    whole = plane(4).all
    assert whole.i.shape == (QUERIES, 1)
    assert whole.j.shape == (KEYS,)
    assert plane(4, 4).all.i.shape == (BATCH, 1, 1, QUERIES, 1)


@pytest.mark.parametrize("starts", [[4], [4, -9]])
def test_a_rectangle_is_a_part_of_the_whole(starts: list[int]) -> None:
    whole = plane(*starts, key_start=3)
    part = whole.pairs(slice(2, 6), slice(1, 8))
    assert torch.equal(part.i, whole.all.i[..., 2:6, :])
    assert torch.equal(part.j, whole.all.j[1:8])
    assert part.row.flatten().tolist() == [2, 3, 4, 5]
    assert part.column.tolist() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("size", [(QUERIES, KEYS), (1, KEYS), (HEADS, QUERIES, 1), (BATCH, 1, 1, KEYS)])
def test_cut(size: tuple[int, ...]) -> None:
    tensor = torch.rand(size)
    part = plane().pairs(slice(2, 6), slice(1, 8)).cut(tensor)
    wanted = tensor.expand(BATCH, HEADS, QUERIES, KEYS)[..., 2:6, 1:8].unflatten(1, (KV_HEADS, GROUP))
    assert torch.equal(part.expand_as(wanted), wanted)
    assert part.numel() <= tensor.numel()


def test_split_heads() -> None:
    tensor = torch.rand(BATCH, HEADS, 4)
    assert torch.equal(split_heads(tensor, plane())[:, 1, 2], tensor[:, GROUP + 2])
    assert split_heads(tensor[:, :1], plane()).shape == (BATCH, 1, 1, 4)


@given(
    starts=st.lists(st.integers(-50, 50), min_size=1, max_size=3),
    key_start=st.integers(0, 9),
    reach=st.integers(0, 40),
    rows=st.tuples(st.integers(0, 6), st.integers(1, 5)),
    columns=st.tuples(st.integers(0, 10), st.integers(1, 5)),
)
def test_offset_span(
    starts: list[int], key_start: int, reach: int, rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    """The first and one past the last entry of a table of clipped offsets that the rectangle uses."""
    whole = Plane(len(starts), 1, 1, 20, 20, torch.tensor(starts), key_start)
    pairs = whole.pairs(*(slice(first, first + count) for first, count in (rows, columns)))
    entries = (pairs.i - pairs.j).clamp(-reach, reach) + reach
    first, stop = pairs.offset_span(reach)
    if len(starts) == 1:
        assert (first, stop) == (int(entries.min()), int(entries.max()) + 1)
    assert first <= int(entries.min()) <= int(entries.max()) < stop


@pytest.mark.parametrize("height", [1, 2, 3, 7, 9])
def test_strips_cover_the_rows_once(height: int) -> None:
    row_blocks = plane(4, -9).row_blocks(height)
    rows = list(row_blocks)
    assert [row for part in rows for row in range(part.start, part.stop)] == list(range(QUERIES))
    assert row_blocks.count == len(rows)
    for number, part in enumerate(rows):
        assert part.stop - part.start <= height
        assert row_blocks.first[:, 0, number].tolist() == [4 + part.start, -9 + part.start]
        assert row_blocks.last[:, 0, number].tolist() == [4 + part.stop - 1, -9 + part.stop - 1]


def test_strips_of_nothing() -> None:
    empty = Plane(1, 1, 1, 0, 5, torch.tensor([0]))
    assert empty.row_blocks(3).count == 0
    assert list(empty.row_blocks(3)) == []
    assert empty.row_blocks(3).key_span == (0, 5)
    assert plane(key_start=3).row_blocks(2).key_span == (3, 3 + KEYS)
