"""What the operator `regard::attend` returns, by name and shape: output, statistics, rows kept for backward.

`aux` and `keeps` are names joined by commas. Kept can be `state`, `at` and `out` of the native kernels' rows, and
`native`: 1 if they were filled, 0 if backward must compute everything again.
"""

import torch
from torch import Tensor

DIFFERENTIABLE = ("out", "lse", "entropy")
RESUMED = ("out", "lse", "entropy", "state", "at", "native")


def names_in(joined: str) -> tuple[str, ...]:
    """The names."""
    return tuple(joined.split(",")) if joined else ()


def resumed_names(aux: str, keeps: str) -> tuple[str, ...]:
    """The results that backward is given; none if it must compute everything again."""
    known = {"out", *names_in(aux), *names_in(keeps)}
    return tuple(name for name in RESUMED if name in known) if keeps else ()


def blank(query: Tensor, key: Tensor, value: Tensor, aux: str, keeps: str) -> list[Tensor]:
    """The results with their shapes and no numbers. What does not fit is refused when the operator runs."""
    inputs = (query, key, value)
    if min(tensor.ndim for tensor in inputs) < 2:
        return [torch.empty_like(query) for _ in ("out", *names_in(aux), *names_in(keeps))]
    rows = _leading([tensor.shape[:-3] for tensor in inputs])
    if max(tensor.ndim for tensor in inputs) > 2:
        rows.append(query.shape[-3] if query.ndim > 2 else 1)
    out = query.new_empty((*rows, query.shape[-2], value.shape[-1]))
    dtype = torch.promote_types(query.dtype, torch.float32)
    found = [out]
    for name in names_in(aux):
        last = key.shape[-2] if name == "received" else query.shape[-2]
        found.append(query.new_empty((*rows, last), dtype=torch.int64 if name == "peak_at" else dtype))
    return found + [query.new_empty(kept_shape(name, out), dtype=kept_dtype(name, dtype)) for name in names_in(keeps)]


def kept_shape(name: str, out: Tensor) -> tuple[int, ...]:
    """The shape of a kept tensor beside this output."""
    match name:
        case "native":
            return ()
        case "out":
            return tuple(out.shape)
        case "state":
            return (2, *out.shape[:-1])
    return tuple(out.shape[:-1])


def kept_dtype(name: str, dtype: torch.dtype) -> torch.dtype:
    """Its dtype, if `dtype` is what accumulates."""
    return torch.int64 if name in ("native", "at") else dtype


def _leading(shapes: list[torch.Size]) -> list[int]:
    """The axes they broadcast to; sizes may be symbols, which no set can hold."""
    rank = max(map(len, shapes))
    aligned = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return [next((size for size in axis if size != 1), 1) for axis in zip(*aligned, strict=True)]
