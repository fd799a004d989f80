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
from regard.engine.flex.masks import lower_mask
from regard.engine.flex.mod import Mod, Places
from regard.engine.flex.scores import lower_score
from regard.engine.fork import fork_waits
from regard.engine.request import Request
from regard.spec.masks import Mask
from regard.spec.plane import Plane
from regard.spec.steps import shows_everything

KERNELS = 256  # structures that are kept compiled
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


def compiled(structure: tuple[Any, ...], query: Tensor, key: Tensor, value: Tensor, call: FlexCall) -> OutAndLse:
    """Output and lse by the kernel of this structure; lengths, positions and tables may differ between calls."""
    found: OutAndLse = _kernel(structure)(query, key, value, call)
    return found


def dense(query: Tensor, key: Tensor, value: Tensor, call: FlexCall) -> OutAndLse:
    """The same by FlexAttention's own formula, queries × keys numbers at a time."""
    with _uncompiled():
        return _attention(query, key, value, call)


def _attention(query: Tensor, key: Tensor, value: Tensor, call: FlexCall) -> OutAndLse:
    found: Any = flex.flex_attention(
        query,
        key,
        value,
        score_mod=call.score_mod,
        block_mask=call.block_mask,
        scale=call.scale,
        enable_gqa=call.grouped,
        return_aux=AuxRequest(lse=True) if call.lse else None,
    )
    return (found[0], found[1].lse) if call.lse else (found, None)


@lru_cache(KERNELS)
def _kernel(structure: tuple[Any, ...]) -> Callable[..., OutAndLse]:
    """The function compiled for one structure. Its code is its own and has a name of its own: torch counts compilations
    by code, and gives up after eight; what it found to differ between calls it remembers by name."""
    code = _attention.__code__.replace(co_name=f"flex_attention_{next(_number)}")
    found: Callable[..., OutAndLse] = torch.compile(
        types.FunctionType(code, globals()), fullgraph=True, backend=BACKEND
    )
    return found


_number = count()
_switch = fork_waits()
_before: list[bool] = []  # what torch's setting was before each call that is under way; the first counts


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Without compiling: torch would trace every call to reach the same formula."""
    with _switch:
        _before.append(flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG)
        flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
    try:
        yield
    finally:
        with _switch:
            flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = len(_before) > 1 or _before[0]
            _before.pop()


NARROWEST = 16  # the least width of the kernels; narrower vectors get zeros
TABLES = 16  # block tables that are kept


def attention(request: Request, trained: bool) -> OutAndLse:
    """The output (batch, head, query, d_v), and the lse where it is asked for or a sink needs it."""
    places = Places.of(request.plane)
    lowered = lower_score(request, places)
    steps = request.mask.steps(request.plane)
    mask = None if shows_everything(steps) else lower_mask(steps, request.plane, places)
    block_mask = None if mask is None else _block_mask(request.mask, request.plane, mask, trained)
    lse = wants_lse(request)
    score_mod = None if lowered.mod is None else lowered.mod.fn
    call = FlexCall(score_mod, block_mask, lowered.scale, request.plane.group > 1, lse)
    inputs = [_widened(tensor) for tensor in (lowered.query, lowered.key, lowered.value)]
    if not trained:  # on a CPU, torch refuses a tensor that could need a gradient even where none is taken
        inputs = [tensor.detach() for tensor in inputs]
    query, key, value = inputs
    if has_kernel(query, lse):
        shapes = tuple((tensor.shape[1], tensor.shape[3]) for tensor in inputs)
        parts = tuple(None if mod is None else mod.structure for mod in (mask, lowered.mod))
        size = None if block_mask is None else block_mask.BLOCK_SIZE
        about = (query.device, query.dtype, shapes, trained, size, call.scale, call.grouped, lse)
        out, state = compiled((*parts, *about), query, key, value, call)
    else:
        out, state = dense(query, key, value, call)
    return out[..., : lowered.value.shape[-1]], state


def wants_lse(request: Request) -> bool:
    """Whether the lse is asked for, or a sink is merged by it."""
    return "lse" in request.aux or request.sink is not None


def _widened(tensor: Tensor) -> Tensor:
    missing = NARROWEST - tensor.shape[-1]
    return pad(tensor, (0, missing)) if missing > 0 else tensor


def _block_mask(mask: Mask, plane: Plane, mod: Mod, trained: bool) -> BlockMask:
    lengths, size = (plane.queries, plane.keys), block_size(plane)
    return BlockMask(lengths, **_tables(mask, plane, trained), BLOCK_SIZE=(size, size), mask_mod=mod.fn)


def _tables(mask: Mask, plane: Plane, trained: bool) -> dict[str, Any]:
    """Partial and full blocks by row, and for backward by column, on the device; those of numbers alone are kept."""
    if mask.contents is None:
        return _make_tables(mask, plane, trained)
    return _cached_tables(_TableKey(mask, plane), trained)


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
def _cached_tables(known: _TableKey, trained: bool) -> dict[str, Any]:
    return _make_tables(known.mask, known.plane, trained)


def _make_tables(mask: Mask, plane: Plane, trained: bool) -> dict[str, Any]:
    """The tables by the names that BlockMask gives them."""
    blocks = blocks_of(mask, plane, block_size(plane))
    found: dict[str, Any] = {}
    for kind, listing in (("", blocks.partial), ("full_", blocks.full)):
        for axis, listed in (("kv", listing), ("q", listing.transposed() if trained else None)):
            found[f"{kind}{axis}_num_blocks"] = None if listed is None else listed.count.to(plane.device)
            found[f"{kind}{axis}_indices"] = None if listed is None else listed.blocks.to(plane.device)
    return found
