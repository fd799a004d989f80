"""Masks as FlexAttention's block tables, from their runs of keys: no pair is looked at.

Blocks are squares of rows and columns. A block is listed as full where one run of visible keys covers it, as partial
where runs leave it open or end inside it, and not at all where it is empty.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.spec.masks import Mask
from regard.spec.masks.runs import EMPTY, FULL, Runs
from regard.spec.plane import Plane

SIZE = 128  # rows and columns of a block; FlexAttention's own default
MOST = 4096  # blocks along one side, beyond which blocks are doubled: a table holds at most 64 MiB per lane
ROWS = 256  # rows of a table that are made at a time
FAR = 1 << 62  # no key stands there
LEAST = 2  # rows and columns of a table: torch compiles again for a size of 1


@dataclass(frozen=True, eq=False)
class Listing:
    """The first `count[…, r]` entries of `blocks[…, r]` are the blocks listed in row r; int32, what follows is 0.

    `count` is (batch or 1, head or 1, rows), `blocks` has the number of columns behind.
    """

    count: Tensor
    blocks: Tensor

    def transposed(self) -> "Listing":
        """The rows listed in each column, in order."""
        batch, heads, rows, columns = self.blocks.shape
        listed = torch.arange(columns, device="cpu") < self.count.unsqueeze(-1)
        lane, row, place = listed.flatten(0, 1).nonzero(as_tuple=True)
        column = self.blocks.flatten(0, 1)[lane, row, place].long()
        order = torch.argsort(lane * columns + column, stable=True)
        lane, row, column = lane[order], row[order], column[order]
        cell = lane * columns + column
        count = torch.bincount(cell, minlength=batch * heads * columns)
        place = torch.arange(len(cell), device="cpu") - (count.cumsum(0) - count)[cell]
        table = torch.zeros((batch * heads, columns, rows), dtype=torch.int32, device="cpu")
        table[lane, column, place] = row.to(torch.int32)
        shape = (batch, heads, columns)
        return Listing(count.view(shape).to(torch.int32), table.view(*shape, rows))


@dataclass(frozen=True, eq=False)
class BlockTables:
    """Partial and full blocks of a mask, and the side of a block."""

    partial: Listing
    full: Listing
    size: int


def block_size(plane: Plane) -> int:
    """The side of a block: 128, doubled until a table of blocks stays small."""
    size = SIZE
    while max(plane.queries, plane.keys) > size * MOST:
        size *= 2
    return size


def blocks_of(mask: Mask, plane: Plane, size: int) -> BlockTables:
    """The block tables of a mask, on the CPU."""
    runs = mask.runs(plane.row_blocks(size))
    shape = torch.broadcast_shapes(runs.edges.shape[:3], runs.kinds.shape[:3])
    full, partial = _ranges(runs, plane, size)
    columns = -(-plane.keys // size)
    return BlockTables(_listing(*partial, shape, columns), _listing(*full, shape, columns), size)


def _ranges(runs: Runs, plane: Plane, size: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Rising ranges [first, stop) of full blocks and of partial ones, (…, rows, some)."""
    start, stop = (edge - plane.key_start for edge in (runs.edges[..., :-1], runs.edges[..., 1:]))
    kinds, start, stop = torch.broadcast_tensors(runs.kinds, start, stop)
    start, seen = _chained(start, stop, (kinds == FULL) & (stop > start), (kinds != EMPTY) & (stop > start))
    outer = start // size, -(-stop // size)
    inner = -(-start // size), stop // size
    whole = seen & (kinds == FULL) & (inner[1] > inner[0])
    if plane.queries % size:  # as in torch's own tables, a block that reaches past the last row or column is never full
        whole[..., -1, :] = False
    full = torch.where(whole, inner[0], 0), torch.where(whole, inner[1], 0)
    # around the full blocks of a run: what is left of them and what is right of them
    split = torch.where(whole, inner[0], outer[1]), torch.where(whole, inner[1], outer[1])
    left = torch.where(seen, outer[0], 0), torch.where(seen, split[0], 0)
    right = torch.where(seen, split[1], 0), torch.where(seen, outer[1], 0)
    first, past = (torch.stack(pair, -1).flatten(-2) for pair in zip(left, right, strict=True))
    # where one run ends and another begins inside a block, the block is listed once
    reached = pad(past.cummax(-1).values[..., :-1], (1, 0))
    return full, (torch.maximum(first, reached), past)


def _chained(start: Tensor, stop: Tensor, full: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Full runs that touch become one, the last of them, which starts where the first did."""
    before = pad(torch.where(full, stop, -1).cummax(-1).values[..., :-1], (1, 0), value=-1)
    begun = torch.where(full & (start != before), start, -1).cummax(-1).values
    behind = pad(torch.where(full, start, FAR).flip(-1).cummin(-1).values.flip(-1)[..., 1:], (0, 1), value=FAR)
    return torch.where(full, begun, start), seen & ~(full & (behind == stop))


def _listing(first: Tensor, past: Tensor, shape: torch.Size, columns: int) -> Listing:
    """Ranges one after another, in a table that has room for every column."""
    ends = (past - first).clamp(min=0).cumsum(-1)
    size = [max(LEAST, length) for length in (shape[2], columns)]
    count = torch.zeros((*shape[:2], size[0]), dtype=torch.int32, device="cpu")
    count[..., : shape[2]] = ends[..., -1]
    table = torch.zeros((*shape[:2], *size), dtype=torch.int32, device="cpu")
    place = torch.arange(int(ends[..., -1].max()), device="cpu")
    for top in range(0, shape[2], ROWS):
        rows = slice(top, min(top + ROWS, shape[2]))
        table[..., rows, : len(place)] = _numbers(first[..., rows, :], ends[..., rows, :].contiguous(), place)
    return Listing(count, table)


def _numbers(first: Tensor, ends: Tensor, place: Tensor) -> Tensor:
    """The block at each place of a row whose ranges start at `first` and are exhausted at `ends`; 0 past the last."""
    which = torch.searchsorted(ends, place.expand(*ends.shape[:-1], -1).contiguous(), right=True)
    inside = which < ends.shape[-1]
    which = which.clamp(max=ends.shape[-1] - 1)
    begun = pad(ends[..., :-1], (1, 0)).gather(-1, which)
    return torch.where(inside, first.gather(-1, which) + place - begun, 0)
