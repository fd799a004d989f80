"""A request as one call of FlexAttention, compiled where torch has a kernel, by its dense formula elsewhere."""

import importlib.util
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import AuxRequest, BlockMask
from torch.nn.functional import pad

from regard.engine.flex.blocks import block_size, blocks_of
from regard.engine.flex.mods import Places, lower_mask, lower_score
from regard.engine.fork import fork_waits
from regard.engine.request import Request
from regard.spec.masks import Mask
from regard.spec.plane import Plane
from regard.spec.steps import shows_everything

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
        pad(tensor, (0, max(0, NARROWEST - tensor.shape[-1]))) for tensor in (lowered.query, lowered.key, lowered.value)
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
        with _uncompiled():
            out, state = _attention(query, key, value, call)
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
