"""Masks of FlexAttention: `mask_mod` and BlockMask, compared with `flex_attention` itself."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, and_masks, create_block_mask, flex_attention, or_masks

import regard
from regard.spec import masks
from regard.spec.masks import Mask, from_flex
from regard.spec.masks.functions import FlexBlocks
from regard.spec.masks.runs import EMPTY, FULL, MIXED, Run
from regard.spec.plane import Pairs, Plane

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

Seen = Callable[[Mask, Pairs], Tensor]
Mod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 3, 37, 53, 7
IDS = torch.arange(KEYS) // 11
OFFSETS = torch.tensor([5, 13])


def causal(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    return q_idx >= kv_idx


def documents(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    return IDS[q_idx] == IDS[kv_idx]


def by_row_and_head(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    return (kv_idx - q_idx <= OFFSETS[b]) & ((q_idx + kv_idx + h) % 4 != 1)


MODS: list[Mod] = [causal, documents, by_row_and_head, and_masks(causal, documents), or_masks(causal, by_row_and_head)]


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(BATCH, HEADS, length, WIDTH, generator=generator, dtype=torch.float64)
        for length in (QUERIES, KEYS, KEYS)
    )
    return q, k, v


def agree(mask: Mask, block: BlockMask) -> None:
    """Rows, not positions: `query_start` changes nothing, and its default would be KEYS − QUERIES."""
    q, k, v = inputs()
    theirs = flex_attention(q, k, v, block_mask=block)
    assert isinstance(theirs, Tensor)
    assert not mask.positional
    for engine in ("reference", "tiled"):
        ours = regard.attend(q, k, v, mask=mask, engine=engine)
        # both are float64 sums of fewer than 64 terms of size 1
        torch.testing.assert_close(ours, theirs, atol=64 * torch.finfo(torch.float64).eps, rtol=0)


@pytest.mark.parametrize("mod", MODS)
def test_mask_mod(mod: Mod) -> None:
    agree(from_flex(mod), create_block_mask(mod, BATCH, HEADS, QUERIES, KEYS, device="cpu"))
    assert from_flex(mod) == masks.RowWhere(mod)


@pytest.mark.parametrize("size", [128, 8, (4, 16)])
@pytest.mark.parametrize("mod", MODS)
def test_block_mask(mod: Mod, size: int | tuple[int, int], seen: Seen) -> None:
    batch, heads = (BATCH, HEADS) if mod in (MODS[2], MODS[4]) else (None, None)
    block = create_block_mask(mod, batch, heads, QUERIES, KEYS, device="cpu", BLOCK_SIZE=size)
    mask = from_flex(block)
    plane = Plane(BATCH, HEADS, 1, QUERIES, KEYS, torch.tensor([99]))
    assert torch.equal(seen(mask, plane.all), seen(masks.RowWhere(mod), plane.all))
    agree(mask, block)


def test_the_blocks_become_runs() -> None:
    block = create_block_mask(causal, None, None, 32, 32, device="cpu", BLOCK_SIZE=8)
    plane = Plane(1, 1, 1, 32, 32, torch.tensor([0]))
    lists = from_flex(block).runs(plane.row_blocks(8)).lists(0)
    assert lists[2] == [Run(0, 16, FULL), Run(16, 24, MIXED)]
    assert from_flex(block).runs(plane.row_blocks(16)).lists(0)[1] == [Run(0, 16, FULL), Run(16, 32, MIXED)]
    assert from_flex(block).pairs() == 32 * 33 // 2


def test_blocks_that_are_not_listed_are_hidden(seen: Seen) -> None:
    """Blocks put together by hand mean what the kernels do with them, though their `mask_mod` shows more."""
    count = torch.tensor([[[1, 2]]], dtype=torch.int32)
    indices = torch.tensor([[[[2, 77, 0], [0, 1, -5]]]], dtype=torch.int32)  # behind the count stands anything
    full = torch.tensor([[[1, 0]]], dtype=torch.int32), torch.tensor([[[[0, 0, 0], [0, 0, 0]]]], dtype=torch.int32)
    block = BlockMask.from_kv_blocks(
        count, indices, *full, BLOCK_SIZE=(3, 2), mask_mod=causal, seq_lengths=(5, 6), compute_q_blocks=False
    )
    mask = from_flex(block)
    assert isinstance(mask, FlexBlocks)
    assert mask.kinds.tolist() == [[[[FULL, EMPTY, MIXED], [MIXED, MIXED, EMPTY]]]]
    visible = seen(mask, Plane(1, 1, 1, 5, 6, torch.tensor([0])).all)[0, 0]
    shown = {(0, 0), (0, 2), (1, 0), (1, 1)}
    for row in range(5):
        for column in range(6):
            cell = (row // 3, column // 2)
            assert visible[row, column] == (cell in shown and (cell == (0, 0) or column <= row))


def test_blocks_of_fewer_axes() -> None:
    block = BlockMask.from_kv_blocks(
        torch.tensor([1, 2], dtype=torch.int32),
        torch.tensor([[0, 1], [0, 1]], dtype=torch.int32),
        BLOCK_SIZE=4,
        compute_q_blocks=False,
    )
    assert from_flex(block).pairs() == 4 * 4 + 4 * 8


@pytest.mark.parametrize(
    "size, text",
    [
        (
            (BATCH, HEADS, 31, KEYS),
            "this BlockMask was made for 37 queries and 53 keys, the call has 31 and 53; "
            "create_block_mask(..., Q_LEN=31, KV_LEN=53)",
        ),
        (
            (5, HEADS, QUERIES, KEYS),
            "this BlockMask has 2 batch rows and 3 heads, the call has 5 and 3; each must be 1 or equal",
        ),
    ],
)
def test_a_block_mask_fits_its_sizes_only(size: tuple[int, int, int, int], text: str) -> None:
    mask = from_flex(create_block_mask(by_row_and_head, BATCH, HEADS, QUERIES, KEYS, device="cpu"))
    batch, heads, queries, keys = size
    with pytest.raises(ValueError, match=re.escape(text)):
        mask.pairs(queries, keys, batch=batch, heads=heads)


def test_neither() -> None:
    with pytest.raises(TypeError, match=re.escape("RowWhere takes a function of (b, h, i, j), got Tensor")):
        from_flex(torch.ones(3, 3))
