"""Runs keep their promises: EMPTY hides everything, FULL shows everything, for every mask and any row blocks."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.spec import masks
from regard.spec.masks import Mask
from regard.spec.masks.runs import EMPTY, FULL, MIXED, Run, Runs, cut
from regard.spec.plane import Pairs, Plane, RowBlocks

Seen = Callable[[Mask, Pairs], Tensor]
Cases = SearchStrategy[tuple[Mask, Plane]]


def painted(runs: Runs, plane: Plane) -> Tensor:
    """The kind of every key for every row block, (batch, head, row blocks, key); −1 where runs say nothing."""
    lanes = (plane.batch, plane.heads, runs.edges.shape[2])
    edges, kinds = runs.edges.expand(*lanes, -1), runs.kinds.expand(*lanes, -1)
    column = torch.arange(plane.keys) + plane.key_start
    kind = torch.full((*lanes, plane.keys), -1)
    for part in range(kinds.shape[-1]):
        inside = (column >= edges[..., part, None]) & (column < edges[..., part + 1, None])
        kind = torch.where(inside, kinds[..., part, None].long(), kind)
    return kind


def keep_promises(mask: Mask, plane: Plane, height: int, visible: Tensor) -> None:
    row_blocks = plane.row_blocks(height)
    runs = mask.runs(row_blocks)
    assert runs.kinds.shape[-1] == runs.edges.shape[-1] - 1
    assert bool((runs.edges.diff(dim=-1) >= 0).all()), "edges rise"
    assert bool(((runs.kinds >= EMPTY) & (runs.kinds <= FULL)).all()), "also between equal edges there is a kind"
    assert not runs.edges.numel() or (int(runs.edges.min()), int(runs.edges.max())) == row_blocks.key_span
    kind = painted(runs, plane)
    assert bool(((kind >= EMPTY) & (kind <= FULL)).all()), "every key has a kind"
    together = painted(runs.merged(), plane)
    lists = runs.lists(plane.key_start)
    assert len(lists) == row_blocks.count
    for number, rows in enumerate(row_blocks):
        some, every = visible[:, :, rows].any(2), visible[:, :, rows].all(2)
        assert not bool((some & (kind[:, :, number] == EMPTY)).any()), "EMPTY hides everything"
        assert bool((every | (kind[:, :, number] != FULL)).all()), "FULL shows everything"
        check_list(lists[number], some.flatten(0, 1).any(0), every.flatten(0, 1).all(0))
        if plane.batch:
            listed = torch.zeros(plane.keys, dtype=torch.int64)
            for run in lists[number]:
                listed[run.start : run.stop] = run.kind
            assert torch.equal(listed, together[0, 0, number])


def check_list(found: list[Run], some: Tensor, every: Tensor) -> None:
    at, kind = 0, EMPTY
    for run in found:
        assert at <= run.start < run.stop <= len(some), "in order, none of them empty, inside"
        assert run.kind in (MIXED, FULL)
        assert run.start > at or run.kind != kind or at == 0, "neighbors of one kind are one run"
        assert not bool(some[at : run.start].any()), "what is not listed is hidden"
        assert run.kind == MIXED or bool(every[run.start : run.stop].all()), "FULL shows everything to all"
        at, kind = run.stop, run.kind
    assert not bool(some[at:].any()), "what is not listed is hidden"


@settings(max_examples=150)
@given(data=st.data())
def test_promises_are_kept(cases: Cases, seen: Seen, data: DataObject) -> None:
    mask, plane = data.draw(cases)
    keep_promises(mask, plane, data.draw(st.integers(1, 9)), seen(mask, plane.all))


@pytest.mark.slow
@settings(max_examples=5000)
@given(data=st.data())
def test_promises_are_kept_in_a_long_sweep(cases: Cases, seen: Seen, data: DataObject) -> None:
    mask, plane = data.draw(cases)
    keep_promises(mask, plane, data.draw(st.integers(1, 9)), seen(mask, plane.all))


class Lying(Mask):
    """Causal, with runs that promise something else."""

    def __init__(self, kind: int, at: int) -> None:
        self.kind, self.at = kind, at

    def visible(self, pairs: Pairs) -> Tensor:
        return masks.Causal().visible(pairs)

    def runs(self, row_blocks: RowBlocks) -> Runs:
        return cut(row_blocks, (MIXED, self.kind, MIXED), torch.tensor(self.at), torch.tensor(self.at + 1))


@pytest.mark.parametrize("kind, at", [(EMPTY, 3), (EMPTY, 0), (FULL, 10), (FULL, 1)])
def test_a_broken_promise_is_noticed(seen: Seen, kind: int, at: int) -> None:
    plane = Plane(1, 1, 1, 11, 11, torch.tensor([0]))
    mask = Lying(kind, at)
    with pytest.raises(AssertionError, match="everything"):
        keep_promises(mask, plane, 4, seen(mask, plane.all))


CLOSED = [
    masks.Full(),
    masks.Causal(),
    masks.Window(5, 2),
    masks.Window(3, None),
    masks.Prefix(7),
    masks.Lengths([9, 23]),
    masks.Global([0, 13, 14]),
    masks.Documents([0] * 9 + [1] * 5 + [4] * 16),
    masks.Documents([8] * 9 + [1] * 5 + [4] * 16),
    masks.Blocks(4, torch.eye(8, dtype=torch.bool)),
]


@pytest.mark.parametrize("left", CLOSED, ids=repr)
@pytest.mark.parametrize("right", CLOSED, ids=repr)
def test_single_rows_are_settled(left: Mask, right: Mask) -> None:
    """Masks in closed form, and what is made of them, leave nothing to look at in a row block of one query."""
    plane = Plane(2, 1, 1, 30, 30, torch.tensor([0]))
    for mask in (left & right, left | ~right):
        runs = mask.runs(plane.row_blocks(1))
        assert not bool(((runs.kinds == MIXED) & (runs.edges.diff(dim=-1) > 0)).any())


def test_empty_intervals_do_not_pile_up() -> None:
    plane = Plane(1, 1, 1, 50, 50, torch.tensor([0]))
    mask: Mask = masks.Causal()
    for _ in range(20):
        mask = mask & masks.Causal()
    assert mask.runs(plane.row_blocks(5)).kinds.shape[-1] == masks.Causal().runs(plane.row_blocks(5)).kinds.shape[-1]


def test_many_batch_rows_merge_in_linear_space() -> None:
    """1,000 lengths are 2,000 edges a row block, not 1,000 × 2,000 comparisons."""
    lengths = torch.arange(1000) * 7 % 997
    plane = Plane(1000, 1, 1, 1000, 1000, torch.tensor([0]))
    lists = (masks.Lengths(lengths) & masks.Causal()).runs(plane.row_blocks(100)).lists(0)
    assert lists == [[Run(0, min(996, 100 * block + 100), MIXED)] for block in range(10)]
    full = (masks.Lengths(lengths + 2) | masks.Prefix(2)).runs(plane.row_blocks(500)).lists(0)
    assert full == [[Run(0, 2, FULL), Run(2, 998, MIXED)]] * 2


MILLION = 1_000_000


def documents(order: str) -> Mask:
    ids = torch.arange(MILLION) // 3001
    return masks.Documents(ids if order == "packed" else ids * 7919 % 1009)


MASKS = {
    "causal": masks.Causal(),
    "window": masks.Window(4096, 0),
    "documents": documents("packed"),
    "documents in any order": documents("renamed"),
    "prefix": masks.Prefix(1009),
    "lengths": masks.Lengths([900_001]),
}
MASKS["causal & window"] = MASKS["causal"] & MASKS["window"]
MASKS["causal & documents"] = MASKS["causal"] & MASKS["documents"]
MASKS["window & documents & lengths"] = MASKS["window"] & MASKS["documents"] & MASKS["lengths"]
MASKS["(causal | prefix) & lengths"] = (MASKS["causal"] | MASKS["prefix"]) & MASKS["lengths"]
MASKS["all of them"] = MASKS["causal & window"] & MASKS["documents"] & MASKS["prefix"] & MASKS["lengths"]


class Work(TorchDispatchMode):
    """How many numbers the operators inside have written."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        written = [part for part in tree_leaves(out) if isinstance(part, Tensor)]
        self.numbers += sum(part.numel() for part in written if not part._is_view())
        return out


def batched(batch: int) -> tuple[Mask, Plane]:
    mask = masks.Causal() & masks.Lengths(torch.arange(batch) * 100_003 + 1009)
    return mask, Plane(batch, 1, 1, MILLION, MILLION, torch.tensor([0]))


LONG = {name: (mask, Plane(1, 1, 1, MILLION, MILLION, torch.tensor([0]))) for name, mask in MASKS.items()}
LONG |= {f"{batch} batch rows": batched(batch) for batch in (3, 8)}


@pytest.mark.parametrize("name", LONG)
def test_a_million_positions_take_work_linear_in_the_length(name: str) -> None:
    mask, plane = LONG[name]
    row_blocks = plane.row_blocks(128)
    with Work() as work:
        lists = mask.runs(row_blocks).lists(0)
    assert len(lists) == row_blocks.count
    assert work.numbers < 20 * MILLION * plane.batch, "row blocks × row blocks would be 60 million"
