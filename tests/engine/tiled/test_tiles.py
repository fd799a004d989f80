"""The tiles of a schedule: they cover what is visible, skip what is empty, are cut at absolute places, and are few."""

import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import masks
from regard.engine.tiled.tiles import CELLS, HEIGHT, SEGMENT, Schedule, Tile, TileSpan
from regard.spec.plane import Plane
from regard.testing import MASKS, Draw, Sizes, small_tiles

planes = st.builds(
    lambda batch, heads, queries, keys, start: Sizes(batch, heads, 1, queries, keys, 1, 1, start),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 30),
    st.integers(1, 40),
    st.integers(0, 5),
)


def plane_of(size: Sizes, key_start: int = 0) -> Plane:
    starts = torch.tensor([size.query_start])
    return Plane(size.batch, size.kv_heads, size.group, size.queries, size.keys, starts, key_start)


@given(planes, st.sampled_from(sorted(MASKS)), st.integers(0, 99), st.booleans())
def test_tiles_cover_what_is_visible_once(size: Sizes, name: str, seed: int, whole_rows: bool) -> None:
    plane, mask = plane_of(size), MASKS[name](size, Draw(seed))
    with small_tiles():
        schedule = Schedule.of(plane, mask, 1, whole_rows)
        strips = list(schedule.row_blocks)
    visible = mask.visible(plane.all).expand(size.batch, size.kv_heads, 1, size.queries, size.keys)
    seen = torch.zeros(size.queries, size.keys, dtype=torch.int64)
    at = 0
    for rows, tiles in strips:
        assert rows.start == at
        at = rows.stop
        edge = 0
        for tile in tiles:
            assert tile.rows == rows
            assert edge <= tile.columns.start < tile.columns.stop <= size.keys  # left to right, no overlap
            edge = tile.columns.stop
            part = visible[..., rows, tile.columns]
            seen[rows, tile.columns] += 1
            assert bool(part.all()) or tile.mixed
            # cut at multiples of the segment, so no tile reaches over one
            assert tile.columns.start // schedule.segment == (tile.columns.stop - 1) // schedule.segment
    assert at == size.queries
    assert bool((seen[visible.flatten(0, 2).any(0)] == 1).all())


@given(planes, st.sampled_from(["full", "causal", "window", "where", "global"]), st.integers(0, 9))
def test_the_outline_names_the_same_tiles(size: Sizes, name: str, seed: int) -> None:
    with small_tiles():
        schedule = Schedule.of(plane_of(size), MASKS[name](size, Draw(seed)), 1, False)
        for (rows, tiles), (same, spans) in zip(schedule.row_blocks, schedule.outline, strict=True):
            assert rows == same
            assert [tile.columns for tile in tiles] == [
                tile.columns for span in spans for tile in schedule.tiles(rows, span)
            ]
            if spans:
                assert (spans[0].start, spans[-1].stop) == (tiles[0].columns.start, tiles[-1].columns.stop)


def test_whole_segments_are_named_once() -> None:
    schedule = Schedule.of(Plane(1, 1, 1, 10, 5000, torch.tensor([0])), masks.Full(), 1, False)
    _, spans = next(schedule.outline)
    assert spans == [TileSpan(0, SEGMENT, False, 9), TileSpan(9 * SEGMENT, 5000 - 9 * SEGMENT, False)]


def test_keys_are_cut_at_absolute_places() -> None:
    """Keys that start in the middle of a segment are first cut at its end."""
    schedule = Schedule.of(Plane(1, 1, 1, 4, 1000, torch.tensor([700]), key_start=700), masks.Full(), 1, False)
    ((_, tiles),) = schedule.row_blocks
    assert [(tile.columns.start, tile.columns.stop) for tile in tiles] == [(0, 324), (324, 836), (836, 1000)]


def test_pieces_of_one_segment_become_one_tile() -> None:
    two_ends = masks.Window(3, 3) | masks.Prefix(2)
    schedule = Schedule.of(Plane(1, 1, 1, 4, 200, torch.tensor([100])), two_ends, 1, False)
    ((_, tiles),) = schedule.row_blocks
    assert [(tile.columns.start, tile.columns.stop, tile.mixed) for tile in tiles] == [(0, 107, True)]


@pytest.mark.parametrize("lanes", [1, 8, 64, 1000])
@pytest.mark.parametrize("tile_width", [1, 6, 64])
def test_a_tile_is_bounded_whatever_the_length(lanes: int, tile_width: int) -> None:
    for n in (100, 100_000):
        plane = Plane(lanes, 1, 1, n, n, torch.tensor([0]))
        schedule = Schedule.of(plane, masks.Causal(), tile_width, False)
        short = Schedule.of(Plane(lanes, 1, 1, 10, 10, torch.tensor([0])), masks.Causal(), tile_width, False)
        assert (schedule.height, schedule.segment) == (short.height, short.segment)
        cells = lanes * tile_width * schedule.height * schedule.segment
        assert cells <= max(CELLS, lanes * tile_width * 16 * 64)
        assert 16 <= schedule.height <= HEIGHT
        assert 64 <= schedule.segment <= SEGMENT


def test_whole_rows_stand_in_low_strips() -> None:
    assert Schedule.of(Plane(1, 1, 1, 99, 99, torch.tensor([0])), masks.Full(), 1, True).height == 32


def test_no_query_no_strip() -> None:
    assert list(Schedule.of(Plane(1, 1, 1, 0, 9, torch.tensor([9])), masks.Full(), 1, False).row_blocks) == []


def test_a_row_that_sees_nothing_has_no_tile() -> None:
    schedule = Schedule.of(Plane(1, 1, 1, 9, 9, torch.tensor([0])), ~masks.Full(), 1, False)
    assert [tiles for _, tiles in schedule.row_blocks] == [[]]


def test_tiles_of_a_window_grow_with_the_length() -> None:
    def count(n: int) -> int:
        schedule = Schedule.of(Plane(1, 1, 1, n, n, torch.tensor([0])), masks.local(257), 1, False)
        return sum(len(tiles) for _, tiles in schedule.row_blocks)

    assert count(64 * SEGMENT) - count(32 * SEGMENT) == 2 * (count(32 * SEGMENT) - count(16 * SEGMENT))


def test_a_pass_leaves_no_tile_behind() -> None:
    """All tiles of a call would be a number that grows with the square of the length."""
    schedule = Schedule.of(Plane(1, 1, 1, 5000, 5000, torch.tensor([0])), masks.Causal(), 1, False)
    left = [weakref.ref(tile) for _, tiles in schedule.row_blocks for tile in tiles]
    assert len(left) == 110
    assert not any(tile() for tile in left)


def test_a_tile_does_not_keep_its_positions() -> None:
    tile = Tile(Plane(1, 1, 1, 9, 9, torch.tensor([0])), slice(0, 4), slice(2, 9), True)
    assert tile.pairs.i.shape == (4, 1)
    assert tile.pairs is not tile.pairs
