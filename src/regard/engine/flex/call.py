"""The call of torch's function: compiled where torch has a kernel, and by its dense formula where it has none."""

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

from regard.engine.fork import fork_waits

KERNELS = 256  # structures that are kept compiled
BACKEND = "inductor"  # torch's compiler
HALVES = (torch.float32, torch.bfloat16, torch.float16)


class Call(NamedTuple):
    """The arguments of FlexAttention that belong to the structure of a call."""

    score_mod: Callable[..., Tensor] | None
    block_mask: BlockMask | None
    scale: float
    grouped: bool
    lse: bool


Found = tuple[Tensor, Tensor | None]


def has_kernel(query: Tensor, lse: bool) -> bool:
    """Whether torch compiles a kernel for it: always on a GPU; on a CPU for no more than an output."""
    if query.device.type != "cpu":
        return True
    return not lse and query.dtype in HALVES and torch.cpu._is_avx2_supported()


def has_triton() -> bool:
    """Whether what a GPU's kernels are written in is installed."""
    return importlib.util.find_spec("triton") is not None


def compiled(structure: tuple[Any, ...], query: Tensor, key: Tensor, value: Tensor, call: Call) -> Found:
    """Output and lse by the kernel of this structure; lengths, positions and tables may differ between calls."""
    found: Found = _kernel(structure)(query, key, value, call)
    return found


def dense(query: Tensor, key: Tensor, value: Tensor, call: Call) -> Found:
    """The same by FlexAttention's own formula, queries × keys numbers at a time."""
    with _uncompiled():
        return _attention(query, key, value, call)


def _attention(query: Tensor, key: Tensor, value: Tensor, call: Call) -> Found:
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
def _kernel(structure: tuple[Any, ...]) -> Callable[..., Found]:
    """The function compiled for one structure. Its code is its own and has a name of its own: torch counts compilations
    by code, and gives up after eight; what it found to differ between calls it remembers by name."""
    code = _attention.__code__.replace(co_name=f"flex_attention_{next(_number)}")
    found: Callable[..., Found] = torch.compile(types.FunctionType(code, globals()), fullgraph=True, backend=BACKEND)
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
