"""Ways to compute the same attention: the formula as written, in chunks, and block by block. Each is weighed."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.engine.attend import attend
from regard.engine.native.library import library
from regard.engine.plan import Plan, plan
from regard.lab import counted

WIDTH = 64
CHUNK = 64  # queries in a chunk

NAIVE, CHUNKS, AGAIN, TILED, NATIVE = "naive", "chunks", "chunks, again", "flash (tiled)", "flash (native)"
ENGINES = {TILED: "tiled", NATIVE: "native"}

Way = Callable[[Tensor, Tensor, Tensor], Tensor]


def naive(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """softmax(QKᵀ / √d_k) · V, with all scores and all weights as tensors."""
    return (query @ key.mT / math.sqrt(query.shape[-1])).softmax(-1) @ value


def chunked(query: Tensor, key: Tensor, value: Tensor, rows: int = CHUNK, again: bool = False) -> Tensor:
    """The same for some queries at a time; with `again`, backward computes each chunk's weights once more."""
    step = partial(checkpoint, naive, use_reentrant=False) if again else naive
    parts = (step(part, key, value) for part in query.split(rows, -2))
    if not torch.is_grad_enabled():  # the parts are written into one tensor, so that they do not exist twice
        out = torch.empty_like(query)
        for first, part in zip(range(0, query.shape[-2], rows), parts, strict=True):
            out[..., first : first + rows, :] = part
        return out
    return torch.cat(list(parts), -2)


def _ours(engine: str, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    out = attend(query, key, value, engine=engine)
    assert isinstance(out, Tensor)
    return out


def ways() -> dict[str, Way]:
    """By name; the native engine where it was built."""
    found: dict[str, Way] = {NAIVE: naive, CHUNKS: chunked, TILED: partial(_ours, "tiled")}
    return found if library() is None else found | {NATIVE: partial(_ours, "native")}


def forward_bytes(name: str, length: int) -> int:
    """The most that a forward pass over one head holds beyond inputs and output: counted, or as `plan` tells."""
    if name in ENGINES:
        held = _plan(name, length).bytes
        assert held is not None
        return held
    inputs = torch.empty(3, 1, 1, length, WIDTH, device="meta")
    with torch.no_grad():
        return counted.most_bytes(lambda: ways()[name](*inputs)) - 4 * length * WIDTH


def forward_operations(name: str, length: int) -> int:
    """Operations of its products."""
    if name in ENGINES:
        return _plan(name, length).flops
    inputs = torch.empty(3, 1, 1, length, WIDTH, device="meta")
    with torch.no_grad():
        return counted.operations(lambda: ways()[name](*inputs))


def _plan(name: str, length: int) -> Plan:
    inputs = torch.zeros(1, 1, length, WIDTH)
    return plan(inputs, inputs, inputs, engine=ENGINES[name])


def longest(name: str, budget: int, far: int) -> int:
    """About how many tokens' forward pass fits into so many bytes.

    The formula as written is weighed until it no longer fits. All others are straight lines in the length, which are
    drawn out from `far` and half of it.
    """
    if name != NAIVE:
        low, high = forward_bytes(name, far // 2), forward_bytes(name, far)
        return int(far + (budget - high) * (far // 2) / (high - low))
    fits, too_long = 1, 1 << 24
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        fits, too_long = (middle, too_long) if forward_bytes(name, middle) <= budget else (fits, middle)
    return fits


def training(name: str, length: int) -> tuple[int, int]:
    """Most bytes beyond inputs, and operations, of a forward and a backward pass.

    The native engine is not among them: a counter of tensors does not see what it holds while it goes back.
    """
    way: Way = partial(chunked, again=True) if name == AGAIN else ways()[name]
    device = "cpu" if name in ENGINES else "meta"

    def work() -> Tensor:
        inputs = [torch.ones(1, 1, length, WIDTH, device=device, requires_grad=True) for _ in range(3)]
        out = way(*inputs)
        out.backward(torch.ones_like(out))
        return out

    with torch.enable_grad():
        return counted.most_bytes(work), counted.operations(work)
