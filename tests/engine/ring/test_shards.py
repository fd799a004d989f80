"""How a sequence is divided, what each process needs of the others, and how the work comes out."""

import pytest
import torch

from regard import masks, plan
from regard.engine.ring.shards import Rectangle, RowRange, Shards, between, contiguous, even, route, shards_of, zigzag
from regard.spec.masks.count import count_visible
from regard.spec.masks.extent import plane_of
from regard.spec.plane import Selection


def whole(shards: Shards) -> list[int]:
    return sorted(row for spans in shards.spans for span in spans for row in range(*span))


@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
@pytest.mark.parametrize("lengths", [[5], [3, 4], [0, 7, 2], [1, 0, 0, 6]])
def test_every_row_once(layout: str, lengths: list[int]) -> None:
    shards = shards_of(layout, lengths)
    assert whole(shards) == list(range(sum(lengths)))
    assert list(shards.lengths) == lengths


def test_zigzag_takes_from_both_ends() -> None:
    assert zigzag([4, 4]).spans == ((RowRange(0, 2), RowRange(6, 8)), (RowRange(2, 4), RowRange(4, 6)))


def test_moves_turn_one_division_into_another() -> None:
    source, target = contiguous([5, 0, 8]), zigzag(even(13, 3))
    held = [[row for span in spans for row in range(*span)] for spans in source.spans]
    for rank, spans in enumerate(target.spans):
        found = [-1] * target.lengths[rank]
        for other in range(3):
            for move in source.moves(target, other, rank):
                found[move.put] = held[other][move.taken]
        assert found == [row for span in spans for row in range(*span)]


@pytest.mark.parametrize("world, length", [(2, 1024), (3, 100_003), (4, 4096), (8, 100_003)])
def test_causal_work_is_even(world: int, length: int) -> None:
    mask = masks.Causal()
    plane = plane_of(mask, length)
    found = route(mask, plane, "contiguous", even(length, world), even(length, world))
    exact = []
    for own in found.rectangles:
        parts = [part for source in own for part in source]
        exact.append(
            sum(
                count_visible(mask.sliced(selection := _selected(length, part)), plane.sliced(selection))
                for part in parts
            )
        )
    assert sum(exact) == length * (length + 1) // 2
    assert max(exact) <= 1.05 * sum(exact) / world
    assert found.uneven <= 1.05


def _selected(length: int, part: Rectangle) -> Selection:
    return Selection(rows=slice(*part.rows), columns=slice(*part.columns), queries=length)


def test_contiguous_causal_would_not_be() -> None:
    plane = plane_of(masks.Causal(), 4096)
    shards = contiguous(even(4096, 4))
    assert between(masks.Causal(), plane, shards, shards).uneven > 1.7


def test_an_even_mask_moves_nothing() -> None:
    for mask in (masks.Full(), masks.local(65)):
        plane = plane_of(mask, 1024)
        assert route(mask, plane, "contiguous", [256] * 4, [256] * 4).queries == contiguous([256] * 4)


def test_shards_that_the_mask_empties_are_not_sent() -> None:
    """A window reaches into the neighbors alone, and of them only as far as it is wide."""
    mask = masks.Window(8, 0)
    found = route(mask, plane_of(mask, 1024), "contiguous", [256] * 4, [256] * 4)
    for rank in range(4):
        for source in range(4):
            spans = found.columns[rank][source]
            assert spans == {
                0: (RowRange(256 * rank, 256 * rank + 256),),
                1: (RowRange(256 * rank - 8, 256 * rank),),
            }.get(rank - source, ())


def test_documents_stay_with_their_own() -> None:
    mask = masks.Documents(torch.arange(4).repeat_interleave(256))
    found = route(mask, plane_of(mask, 1024), "contiguous", [256] * 4, [256] * 4)
    assert all(bool(found.columns[rank][source]) == (rank == source) for rank in range(4) for source in range(4))


def test_a_plan_of_a_million_tokens_holds_none_of_them() -> None:
    query = torch.zeros(1).expand(1, 8, 1 << 20, 64)
    found = plan(query, query, query, mask="causal", world=16, bandwidth=10e9, flops=1e13)
    assert found.exchanged
    assert sum(found.pairs) == pytest.approx(8 * (1 << 39), rel=1e-3)
    assert found.uneven < 1.05
    assert found.seconds is not None
    assert found.seconds > 3.5 * 4 * 64 * sum(found.pairs) / 16 / 1e13
    assert "16 processes, contiguous, halves exchanged" in str(found)
    faster = plan(query, query, query, mask="causal", world=16, bandwidth=20e9, flops=2e13).seconds
    assert faster is not None
    assert faster == pytest.approx(found.seconds / 2)


def test_more_processes_hold_less() -> None:
    query = torch.zeros(1).expand(1, 8, 1 << 16, 64)
    held = [max(plan(query, query, query, world=world).memory) for world in (4, 8, 16)]
    assert held[0] > 1.8 * held[1] > 3.2 * held[2]


@pytest.mark.parametrize(
    "told, text",
    [
        ({"world": 0}, "world must be at least 1, got 0"),
        ({"world": 2, "layout": "round"}, "layout must be 'contiguous' or 'zigzag', got 'round'"),
        ({"world": 2, "flops": 1e12}, "the time of a step needs both: bandwidth= bytes a second and flops="),
        ({"world": 2, "bandwidth": 0.0, "flops": 1.0}, "bandwidth must be a finite number above 0, got 0.0"),
    ],
)
def test_what_a_plan_refuses(told: dict[str, object], text: str) -> None:
    query = torch.zeros(1, 1, 4, 4)
    with pytest.raises(ValueError, match=text):
        plan(query, query, query, **told)  # type: ignore[call-overload]
