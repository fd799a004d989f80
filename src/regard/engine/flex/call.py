"""A request as one call of FlexAttention, compiled where torch has a kernel, by its dense formula elsewhere.

Masks become FlexAttention's block tables, from their runs of keys: no pair is looked at. Blocks are squares of rows and
columns. A block is listed as full where one run of visible keys covers it, as partial where runs leave it open or end
inside it, and not at all where it is empty.
"""

import importlib.util
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import AuxRequest, BlockMask
from torch.nn.functional import pad

from regard.engine.flex.mods import Places, lower_mask, lower_score
from regard.engine.fork import fork_waits
from regard.engine.request import Request
from regard.spec.masks import Mask
from regard.spec.masks.runs import EMPTY, FULL, Runs
from regard.spec.plane import Plane
from regard.spec.steps import shows_everything

SIZE = 128  # rows and columns of a block; FlexAttention's own default
MOST = 4096  # blocks along one side, beyond which blocks are doubled: a table holds at most 64 MiB per head
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
        head_index, row, place = listed.flatten(0, 1).nonzero(as_tuple=True)
        column = self.blocks.flatten(0, 1)[head_index, row, place].long()
        order = torch.argsort(head_index * columns + column, stable=True)
        head_index, row, column = head_index[order], row[order], column[order]
        cell = head_index * columns + column
        count = torch.bincount(cell, minlength=batch * heads * columns)
        place = torch.arange(len(cell), device="cpu") - (count.cumsum(0) - count)[cell]
        table = torch.zeros((batch * heads, columns, rows), dtype=torch.int32, device="cpu")
        table[head_index, column, place] = row.to(torch.int32)
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


KERNELS = 256  # compiled structures that are cached
BACKEND = "inductor"  # torch's compiler
KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class FlexCall(NamedTuple):
    """The arguments of FlexAttention that belong to the structure of a call."""

    score_mod: Callable[..., Tensor] | None
    block_mask: BlockMask | None
    scale: float
    grouped: bool
    lse: bool


OutAndLse = tuple[Tensor, Tensor | None]


def has_kernel(query: Tensor, lse: bool) -> bool:
    """Whether torch compiles a kernel for it: always on a GPU; on a CPU for no more than an output."""
    if query.device.type != "cpu":
        return True
    return not lse and query.dtype in KERNEL_DTYPES and torch.cpu._is_avx2_supported()


def has_triton() -> bool:
    """Whether what a GPU's kernels are written in is installed."""
    return importlib.util.find_spec("triton") is not None


def _attention(query: Tensor, key: Tensor, value: Tensor, call: FlexCall) -> OutAndLse:
    result: Any = flex.flex_attention(
        query,
        key,
        value,
        score_mod=call.score_mod,
        block_mask=call.block_mask,
        scale=call.scale,
        enable_gqa=call.grouped,
        return_aux=AuxRequest(lse=True) if call.lse else None,
    )
    return (result[0], result[1].lse) if call.lse else (result, None)


@lru_cache(KERNELS)
def _kernel(structure: tuple[Any, ...]) -> Callable[..., OutAndLse]:
    """`_attention` compiled for one structure; lengths, positions and tables may differ between calls.

    It gets code and a name of its own: torch counts compilations by code and gives up after eight, and it remembers by
    name what differed between calls.
    """
    code = _attention.__code__.replace(co_name=f"flex_attention_{next(_number)}")
    kernel: Callable[..., OutAndLse] = torch.compile(
        types.FunctionType(code, globals()), fullgraph=True, backend=BACKEND
    )
    return kernel


_number = count()
_switch = fork_waits()
_before: list[bool] = []  # torch's setting before each call that is under way; the first is restored


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Run FlexAttention's dense formula as it is. By default torch would trace every call to reach it."""
    with _switch:
        _before.append(flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG)
        flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
    try:
        yield
    finally:
        with _switch:
            flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = len(_before) > 1 or _before[0]
            _before.pop()


NARROWEST = 16  # the least width of the kernels; narrower vectors are padded with zeros
TABLES = 16  # block tables that are cached


def attention(request: Request, trained: bool) -> OutAndLse:
    """The output (batch, head, query, d_v), and the lse where it is asked for or a sink needs it."""
    plane = request.plane
    places = Places.of(plane)
    lowered = lower_score(request, places)
    steps = request.mask.steps(plane)
    mask = None if shows_everything(steps) else lower_mask(steps, plane, places)
    block_mask = None
    if mask is not None:
        size = block_size(plane)
        if request.mask.contents is None:  # it holds more than numbers
            tables = _block_tables(request.mask, plane, trained)
        else:
            tables = _cached_block_tables(_TableKey(request.mask, plane), trained)
        block_mask = BlockMask((plane.queries, plane.keys), **tables, BLOCK_SIZE=(size, size), mask_mod=mask.fn)
    lse = wants_lse(request)
    score_mod = None if lowered.mod is None else lowered.mod.fn
    call = FlexCall(score_mod, block_mask, lowered.scale, plane.group > 1, lse)
    inputs = [
        tensor if tensor.shape[-1] >= NARROWEST else pad(tensor, (0, NARROWEST - tensor.shape[-1]))  # pad copies
        for tensor in (lowered.query, lowered.key, lowered.value)
    ]
    if not trained:  # on a CPU, torch refuses a tensor that could need a gradient even where none is taken
        inputs = [tensor.detach() for tensor in inputs]
    query, key, value = inputs
    if has_kernel(query, lse):
        shapes = tuple((tensor.shape[1], tensor.shape[3]) for tensor in inputs)
        parts = tuple(None if mod is None else mod.structure for mod in (mask, lowered.mod))
        sizes = None if block_mask is None else block_mask.BLOCK_SIZE
        about = (query.device, query.dtype, shapes, trained, sizes, call.scale, call.grouped, lse)
        out, state = _kernel((*parts, *about))(query, key, value, call)
    else:
        wide = torch.promote_types(query.dtype, torch.float32)  # torch 2.9 rounds q·k to the type of the inputs
        with _uncompiled():
            out, state = _attention(query.to(wide), key.to(wide), value.to(wide), call)
        out = out.to(query.dtype)
    return out[..., : lowered.value.shape[-1]], state


def wants_lse(request: Request) -> bool:
    """Whether the lse is returned, or used to merge a sink."""
    return "lse" in request.aux or request.sink is not None


class _TableKey:
    """A mask and a plane, equal where their tables are."""

    def __init__(self, mask: Mask, plane: Plane) -> None:
        self.mask, self.plane = mask, plane
        lengths = (plane.queries, plane.keys, plane.key_start)
        self.key = (mask.contents, lengths, tuple(plane.starts.tolist()), plane.device)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TableKey) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(TABLES)
def _cached_block_tables(key: _TableKey, trained: bool) -> dict[str, Any]:
    return _block_tables(key.mask, key.plane, trained)


def _block_tables(mask: Mask, plane: Plane, trained: bool) -> dict[str, Any]:
    """Partial and full blocks by row, and for backward by column, on the device, by BlockMask's names."""
    blocks = blocks_of(mask, plane, block_size(plane))
    tables: dict[str, Any] = {}
    for kind, listing in (("", blocks.partial), ("full_", blocks.full)):
        for axis, listed in (("kv", listing), ("q", listing.transposed() if trained else None)):
            tables[f"{kind}{axis}_num_blocks"] = None if listed is None else listed.count.to(plane.device)
            tables[f"{kind}{axis}_indices"] = None if listed is None else listed.blocks.to(plane.device)
    return tables
