"""Documents: ids in any order, per batch row, for queries by row and by position; runs, edges, errors."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.engine.attend import attend
from regard.spec import masks
from regard.spec.masks import Mask
from regard.spec.masks.runs import FULL, MIXED, Run
from regard.spec.plane import Pairs, Plane

Seen = Callable[[Mask, Pairs], Tensor]


def plane(queries: int, keys: int, *starts: int, batch: int = 1, key_start: int = 0) -> Plane:
    return Plane(batch, 1, 1, queries, keys, torch.tensor(starts or [0]), key_start)


def test_a_query_is_in_the_document_of_its_position(seen: Seen) -> None:
    ids = [4, 4, 9, 9, 9, 1, 1]
    whole = seen(masks.Documents(ids), plane(7, 7).all)[0, 0]
    assert whole.tolist() == [[a == b for b in ids] for a in ids]
    last = seen(masks.Documents(ids), plane(2, 7, 5).all)[0, 0]
    assert torch.equal(last, whole[5:])


def test_query_ids_by_row(seen: Seen) -> None:
    """As many as there are queries: the start does not matter, not even a negative one."""
    mask = masks.Documents([0, 0, 1, 1, 2], [2, 0, 7])
    for start in (0, 2, -9):
        visible = seen(mask, plane(3, 5, start).all)[0, 0]
        assert visible.tolist() == [[False] * 4 + [True], [True] * 2 + [False] * 3, [False] * 5]


def test_query_ids_by_position(seen: Seen) -> None:
    """More than there are queries: those at the queries' positions count."""
    mask = masks.Documents([0, 0, 1, 1, 2], [0, 0, 1, 1, 2, 2, 5])
    mask.check(plane(3, 5, 4))
    assert seen(mask, plane(3, 5, 4).all)[0, 0].sum(-1).tolist() == [1, 1, 0]
    assert seen(mask, plane(3, 5, 0).all)[0, 0].sum(-1).tolist() == [2, 2, 2]
    assert mask.positional


def test_batch_rows(seen: Seen) -> None:
    keys = torch.tensor([[0, 0, 0, 1, 1], [5, 6, 6, 6, 6]])
    both = plane(5, 5, batch=2)
    visible = seen(masks.Documents(keys), both.all)[:, 0]
    assert torch.equal(visible, keys[:, :, None] == keys[:, None, :])
    visible = seen(masks.Documents(keys), plane(2, 5, 0, 3, batch=2).all)[:, 0]
    assert torch.equal(visible[0], keys[0, :2, None] == keys[0])
    assert torch.equal(visible[1], keys[1, 3:, None] == keys[1])
    one_row = masks.Documents([0, 0, 0, 1, 1], keys)
    assert torch.equal(seen(one_row, both.all)[:, 0], keys[:, :, None] == keys[0])


def test_ids_beyond_the_keys_and_shards(seen: Seen) -> None:
    ids = torch.tensor([3, 3, 3, 8, 8, 8, 8])
    shard = plane(7, 3, 0, key_start=2)
    assert torch.equal(seen(masks.Documents(ids), shard.all)[0, 0], ids[:, None] == ids[2:5])
    assert masks.Documents(ids).runs(shard.row_blocks(7)).lists(2) == [[Run(0, 3, MIXED)]]


@pytest.mark.parametrize("names", [[0, 1, 2, 3], [9, 2, 7, 4]])
def test_documents_that_stand_together_have_one_full_run(names: list[int]) -> None:
    """Whatever they are called, in rising order or not."""
    ids = torch.tensor(names).repeat_interleave(torch.tensor([6, 10, 1, 7]))
    lists = masks.Documents(ids).runs(plane(24, 24).row_blocks(4)).lists(0)
    assert lists == [
        [Run(0, 6, FULL)],
        [Run(0, 16, MIXED)],
        [Run(6, 16, FULL)],
        [Run(6, 16, FULL)],
        [Run(16, 24, MIXED)],
        [Run(17, 24, FULL)],
    ]


def test_a_torn_document_is_mixed() -> None:
    lists = masks.Documents([0, 0, 1, 1, 0, 2, 2]).runs(plane(7, 7).row_blocks(1)).lists(0)
    assert lists[0] == [Run(0, 5, MIXED)]
    assert lists[2] == [Run(2, 4, FULL)]
    assert lists[5] == [Run(5, 7, FULL)]


@pytest.mark.parametrize("query_ids", [[7, 8, 9], [9, 7, 8]])
def test_ids_absent_from_the_keys_see_nothing(seen: Seen, query_ids: list[int]) -> None:
    for key_ids in ([0, 1, 2, 3], [3, 0, 2, 1]):
        mask = masks.Documents(key_ids, query_ids)
        assert not bool(seen(mask, plane(3, 4).all).any())
        assert mask.runs(plane(3, 4).row_blocks(2)).lists(0) == [[], []]


@pytest.mark.parametrize("queries, keys", [(0, 5), (5, 0), (0, 0)])
def test_nothing(seen: Seen, queries: int, keys: int) -> None:
    for query_ids in (torch.arange(queries), torch.arange(queries).flip(0)):
        mask = masks.Documents(torch.zeros(keys, dtype=torch.int64), query_ids)
        empty = plane(queries, keys)
        mask.check(empty)
        assert seen(mask, empty.all).shape == (1, 1, queries, keys)
        assert mask.runs(empty.row_blocks(2)).lists(0) == [[]] * -(-queries // 2)


def test_no_batch(seen: Seen) -> None:
    mask = masks.Documents(torch.zeros((0, 5), dtype=torch.int64))
    none = Plane(0, 1, 1, 5, 5, torch.zeros(0, dtype=torch.int64))
    mask.check(none)
    assert seen(mask, none.all).shape == (0, 1, 5, 5)
    assert mask.runs(none.row_blocks(2)).lists(0) == [[], [], []]


@pytest.mark.parametrize(
    "make, error, text",
    [
        (
            lambda: masks.Documents(torch.zeros(3)),
            TypeError,
            "Documents' key_ids must be integers, got float32; convert them with .long() if they are whole",
        ),
        (
            lambda: masks.Documents([0, 1], torch.zeros(1, 1, 2, dtype=torch.int64)),
            ValueError,
            "Documents' query_ids must have 1 or 2 axes, got shape (1, 1, 2); squeeze or flatten it first",
        ),
        (
            lambda: masks.Documents([[0, 0], [1, 1], [2, 2]]).check(plane(2, 2, batch=2)),
            ValueError,
            "Documents' key_ids has 3 batch rows, the inputs have 2; give one row, or one per batch row",
        ),
        (
            lambda: masks.Documents([0, 0, 1], [0] * 5).check(plane(5, 5)),
            ValueError,
            "Documents' key_ids must name a document for each of the 5 keys at positions 0 to 4, got 3; "
            "give one id per key, padding included",
        ),
        (
            lambda: masks.Documents([0, 0, 1]).check(plane(3, 3, 1)),
            ValueError,
            "Documents has no id for queries at positions 1 to 3, its key_ids name positions 0 to 2; "
            "pass query_ids, one per query",
        ),
        (lambda: masks.Documents([0, 0, 1]).check(plane(3, 3, -1)), ValueError, "queries at positions -1 to 1"),
        (
            lambda: masks.Documents([0, 0, 1], [0, 1]).check(plane(3, 3)),
            ValueError,
            "Documents' query_ids must name a document for each of the 3 queries, or for each position up to 2, got 2",
        ),
        (lambda: masks.Documents([0, 0]).check(plane(0, 2, key_start=-1)), ValueError, "keys at positions -1 to 0"),
    ],
)
def test_wrong_arguments(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        make()


def test_ids_by_row_need_no_start() -> None:
    query, key = torch.randn(1, 2, 5, 3), torch.randn(1, 2, 3, 3)
    mask = masks.Documents([0, 0, 1], [0, 0, 1, 1, 2])
    out = attend(query, key, key, mask=mask & ~masks.Documents([7, 7, 7], [0, 0, 0, 0, 0]))
    assert torch.equal(out, attend(query, key, key, mask=mask, query_start=0))
    with pytest.raises(ValueError, match="query_start is ambiguous"):
        attend(query, key, key, mask=masks.Documents([0, 0, 1], [0, 0, 1, 1, 2, 2]))
