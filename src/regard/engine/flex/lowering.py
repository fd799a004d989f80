"""A request as one call of FlexAttention: tensors, a function of the score, a block mask."""

from functools import lru_cache
from typing import Any

from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from torch.nn.functional import pad

from regard.engine.flex.blocks import block_size, blocks_of
from regard.engine.flex.call import Call, Found, compiled, dense, has_kernel
from regard.engine.flex.masks import lower_mask
from regard.engine.flex.mod import Mod, Places
from regard.engine.flex.scores import lower_score
from regard.engine.request import Request
from regard.spec.masks import Mask
from regard.spec.plane import Plane
from regard.spec.steps import shows_everything

NARROWEST = 16  # the least width of the kernels; narrower vectors get zeros
TABLES = 16  # block tables that are kept


def attention(request: Request, trained: bool) -> Found:
    """The output (batch, head, query, d_v), and the lse where it is asked for or a sink needs it."""
    places = Places.of(request.plane)
    lowered = lower_score(request, places)
    steps = request.mask.steps(request.plane)
    mask = None if shows_everything(steps) else lower_mask(steps, request.plane, places)
    block_mask = None if mask is None else _block_mask(request.mask, request.plane, mask, trained)
    lse = wants_lse(request)
    score_mod = None if lowered.mod is None else lowered.mod.fn
    call = Call(score_mod, block_mask, lowered.scale, request.plane.group > 1, lse)
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
        return _made(mask, plane, trained)
    return _kept(_Known(mask, plane), trained)


class _Known:
    """A mask and a plane, equal where their tables are."""

    def __init__(self, mask: Mask, plane: Plane) -> None:
        self.mask, self.plane = mask, plane
        lengths = (plane.queries, plane.keys, plane.key_start)
        self.key = (mask.contents, lengths, tuple(plane.starts.tolist()), plane.device)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Known) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(TABLES)
def _kept(known: _Known, trained: bool) -> dict[str, Any]:
    return _made(known.mask, known.plane, trained)


def _made(mask: Mask, plane: Plane, trained: bool) -> dict[str, Any]:
    """The tables by the names that BlockMask gives them."""
    blocks = blocks_of(mask, plane, block_size(plane))
    found: dict[str, Any] = {}
    for kind, listing in (("", blocks.partial), ("full_", blocks.full)):
        for axis, listed in (("kv", listing), ("q", listing.transposed() if trained else None)):
            found[f"{kind}{axis}_num_blocks"] = None if listed is None else listed.count.to(plane.device)
            found[f"{kind}{axis}_indices"] = None if listed is None else listed.blocks.to(plane.device)
    return found
