"""Block tables list every block that shows a pair, call full only what is, and cost no more than they hold."""

import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from regard import masks
from regard.engine.flex import call
from regard.engine.flex.call import BlockTables, Listing, block_size, blocks_of
from regard.spec.plane import Plane
from regard.testing import MASKS, Case, Sizes, peak_bytes


def table(listing: Listing, rows: int, columns: int) -> Tensor:
    """Which blocks are listed, as bools; each once, in order, and none outside."""
    listed = torch.arange(listing.blocks.shape[-1]) < listing.count.unsqueeze(-1)
    found = torch.zeros((*listing.blocks.shape[:3], listing.blocks.shape[-1] + 1), dtype=torch.int64)
    found.scatter_add_(-1, torch.where(listed, listing.blocks.long(), found.shape[-1] - 1), listed.long())
    assert int(found.max()) <= 1
    pairs = listed[..., 1:] & (listing.blocks.diff(dim=-1) <= 0)
    assert not bool(pairs.any())
    assert not bool(found[..., rows:, :].any())
    assert not bool(found[..., columns:].any())
    return found[..., :rows, :columns].bool()


def kinds(blocks: BlockTables, plane: Plane) -> tuple[Tensor, Tensor]:
    rows, columns = -(-plane.queries // blocks.size), -(-plane.keys // blocks.size)
    return table(blocks.partial, rows, columns), table(blocks.full, rows, columns)


def by_looking(mask: masks.Mask, plane: Plane, size: int) -> tuple[Tensor, Tensor]:
    """Blocks that show some pair, and those that show all of size × size pairs."""
    visible = mask.visible(plane.all)
    lanes = (plane.batch, plane.kv_heads, plane.group, plane.queries, plane.keys)
    visible = visible.expand(lanes).flatten(1, 2)
    visible = torch.nn.functional.pad(visible, (0, -plane.keys % size, 0, -plane.queries % size))
    counts = visible.unflatten(-1, (-1, size)).unflatten(-3, (-1, size)).sum((-1, -3))
    return counts > 0, counts == size * size


sizes = st.builds(
    Sizes,
    batch=st.integers(1, 3),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 2),
    queries=st.integers(1, 70),
    keys=st.integers(1, 70),
    query_start=st.integers(0, 40),
)


@given(st.sampled_from(sorted(MASKS)), sizes, st.integers(0, 99), st.sampled_from([1, 4, 8, 16]))
@settings(max_examples=300)
def test_every_visible_pair_is_listed_and_full_blocks_are_full(name: str, size: Sizes, seed: int, side: int) -> None:
    case = Case(mask=name, sizes=size, seed=seed)
    mask = case.build()[1]["mask"]
    start = torch.tensor([size.query_start])
    plane = Plane(size.batch, size.kv_heads, size.group, size.queries, size.keys, start)
    partial, full = kinds(blocks_of(mask, plane, side), plane)
    some, every = by_looking(mask, plane, side)
    assert not bool((partial & full).any())
    assert bool((some <= (partial | full)).all())
    assert bool((full <= every).all())


SHARP = [
    masks.Causal(),
    masks.Window(20, 3),
    masks.Window(None, -2),
    masks.Causal() & masks.Window(40, 0),
    masks.Causal() | masks.Prefix(19),
    masks.Lengths([70, 33]),
    ~masks.Window(30, 30),
    masks.Documents([0] * 30 + [1] * 40) & masks.Causal(),
]


@pytest.mark.parametrize("mask", SHARP, ids=repr)
@pytest.mark.parametrize("start", [0, 7, -9])
def test_closed_forms_leave_nothing_to_chance(mask: masks.Mask, start: int) -> None:
    """Exactly the blocks that looking at every pair would list."""
    if start and any(isinstance(leaf, masks.Documents) for leaf in mask.leaves()):
        start = 0
    plane = Plane(2, 1, 1, 64, 70, torch.tensor([start]))
    partial, full = kinds(blocks_of(mask, plane, 8), plane)
    some, every = by_looking(mask, plane, 8)
    assert torch.equal((partial | full).expand_as(some), some)
    assert torch.equal(full.expand_as(every), every)


def test_they_are_torchs_own_tables() -> None:
    plane = Plane(1, 1, 1, 1000, 1300, torch.tensor([300]))
    ours = blocks_of(masks.Window(400, 0), plane, 128)
    theirs: BlockMask = create_block_mask(
        lambda b, h, q, k: (q + 300 - k >= 0) & (q + 300 - k <= 400), None, None, 1000, 1300, device="cpu"
    )
    turned = ours.partial.transposed(), ours.full.transposed()
    for listing, count, index in (
        (ours.partial, theirs.kv_num_blocks, theirs.kv_indices),
        (ours.full, theirs.full_kv_num_blocks, theirs.full_kv_indices),
        (turned[0], theirs.q_num_blocks, theirs.q_indices),
        (turned[1], theirs.full_q_num_blocks, theirs.full_q_indices),
    ):
        assert count is not None
        assert index is not None
        assert torch.equal(listing.count, count)
        assert listing.blocks.shape == index.shape
        assert listing.blocks.dtype == index.dtype
        listed = torch.arange(index.shape[-1]) < count.unsqueeze(-1)
        assert torch.equal(listing.blocks[listed], index[listed])


def test_a_table_has_two_rows_and_columns_at_least() -> None:
    """Or torch would compile again for short inputs."""
    plane = Plane(1, 1, 1, 5, 9, torch.tensor([4]))
    found = blocks_of(masks.Causal(), plane, 128)
    assert found.partial.blocks.shape == (1, 1, 2, 2)
    assert found.partial.count.tolist() == [[[1, 0]]]
    assert found.partial.transposed().count.tolist() == [[[1, 0]]]
    assert found.full.count.tolist() == [[[0, 0]]]


@pytest.mark.parametrize(("length", "size"), [(1, 128), (524_288, 128), (524_289, 256), (2**24, 4096)])
def test_blocks_grow_so_that_tables_do_not(length: int, size: int) -> None:
    plane = Plane(1, 1, 1, 1, length, torch.tensor([0]))
    assert block_size(plane) == size
    assert length <= size * call.MOST


@pytest.mark.parametrize("mask", [masks.Causal(), masks.Window(4096, 0)], ids=repr)
def test_a_million_positions(mask: masks.Mask) -> None:
    n = 1 << 20
    plane = Plane(1, 1, 1, n, n, torch.tensor([0]))
    size = block_size(plane)
    most, held = peak_bytes(lambda: blocks_of(mask, plane, size))
    assert held <= 2 * (4 * call.MOST**2 + 4 * call.MOST) + 1024
    assert most <= 2 * held
    start = time.monotonic()
    found = blocks_of(mask, plane, size)
    assert time.monotonic() - start < 60  # looking at 10¹² pairs takes hours
    row = found.partial.count[0, 0, 3000] + found.full.count[0, 0, 3000]
    assert int(row) == (3001 if isinstance(mask, masks.Causal) else 4096 // size + 1)
