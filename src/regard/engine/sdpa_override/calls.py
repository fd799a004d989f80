"""Calls that `accelerating` answers: the arguments of torch's attention functions, and the report of who answered."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from regard.engine.context import autocast_disabled, to_autocast
from regard.engine.native.library import library
from regard.engine.sdpa import sdpa_on

NOTHING = (
    "no call of scaled_dot_product_attention or nn.MultiheadAttention came by; a model that multiplies and normalizes "
    "by itself (attn_implementation='eager') is not seen, nor is another thread"
)


@dataclass(frozen=True)
class InterceptedCall:
    """One kind of call: torch's function, the calling layer, shapes, and options beyond plain attention (`asked`).
    `by` is the engine that answered, or the reason why none did."""

    function: str
    layer: str
    query: tuple[int, ...]
    key: tuple[int, ...]
    dtype: str
    asked: str
    by: str


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """How often each kind of call was answered by regard (`served`) and by torch (`left_alone`)."""

    served: Counter[InterceptedCall] = field(default_factory=Counter)
    left_alone: Counter[InterceptedCall] = field(default_factory=Counter)

    def __repr__(self) -> str:
        return f"<Report: {_calls(self.served)} served, {self.left_alone.total()} left alone>"

    def __str__(self) -> str:
        """Two tables. Calls that differ in sizes alone share a line, which shows the smallest and the largest."""
        if not self.served and not self.left_alone:
            return NOTHING
        parts = []
        for title, calls, last in (("served", self.served, "engine"), ("left alone", self.left_alone, "because")):
            if calls:
                parts.append(f"{title}: {_calls(calls)}")
                parts += _table(("calls", "function", "layer", "query", "key", "type", "asked", last), _rows(calls))
        return "\n".join(parts)


def _calls(calls: Counter[InterceptedCall]) -> str:
    return "1 call" if calls.total() == 1 else f"{calls.total()} calls"


def _rows(calls: Counter[InterceptedCall]) -> Iterable[tuple[str, ...]]:
    alike: dict[tuple[object, ...], list[tuple[InterceptedCall, int]]] = {}
    for call, count in calls.items():
        name = (call.function, call.layer, len(call.query), len(call.key), call.dtype, call.asked, call.by)
        alike.setdefault(name, []).append((call, count))
    for same in alike.values():
        first = same[0][0]
        query, key = _sizes([call.query for call, _ in same]), _sizes([call.key for call, _ in same])
        total = str(sum(count for _, count in same))
        yield total, first.function, first.layer, query, key, first.dtype, first.asked or "-", first.by


def _sizes(shapes: list[tuple[int, ...]]) -> str:
    if not shapes[0]:
        return "-"
    axes = [(min(axis), max(axis)) for axis in zip(*shapes, strict=True)]
    return f"({', '.join(str(low) if low == high else f'{low}…{high}' for low, high in axes)})"


def _table(names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [names, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  " + "  ".join([line[0].rjust(widths[0]), *map(str.ljust, line[1:], widths[1:])]).rstrip() for line in lines
    ]


KINDS = (Tensor, torch.nn.Parameter)


class TorchCall(Protocol):
    """The arguments of a call, in torch's order and with torch's names."""

    function: ClassVar[str]

    @property
    def query(self) -> Tensor:
        """The queries."""

    def tensors(self) -> dict[str, Tensor | None]:
        """The tensors among the arguments, by name."""

    def sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of queries and keys, (…, head, length, width)."""

    def words(self) -> str:
        """Options beyond plain attention, for the report."""

    def run(self, engine: str) -> Any:
        """What torch's function returns. Raises ValueError or TypeError, with the reason, for what it cannot do."""


def why_not(call: TorchCall, engine: str) -> str | None:
    """None, or why torch must answer: device, active modes and tensor types are checked, not the spec."""
    if engine == "native" and call.query.device.type != "cpu":
        return f"the native engine runs on the CPU, query is on {call.query.device}; engine='tiled' runs on any"
    if engine == "native" and library() is None:
        return "the package was installed without its C++ core; engine='tiled' needs none"
    if torch._C._is_tracing():
        return "torch.jit.trace records torch's operators only"
    if torch._C._len_torch_dispatch_stack() > 0:
        mode = torch.utils._python_dispatch._get_current_dispatch_mode_stack()[-1]
        return f"{type(mode).__name__} listens to torch's operators, and would not see an engine"
    for name, tensor in call.tensors().items():
        if tensor is None:
            continue
        if type(tensor) not in KINDS:
            return f"{name} is a {type(tensor).__name__}, not a plain tensor"
        if tensor.is_nested or tensor.layout != torch.strided:
            return f"{name} is a sparse or nested tensor"
    return None


def shape_of(tensor: object) -> tuple[int, ...]:
    """The sizes of what should be a tensor; nothing for a nested one, and while torch.jit.trace follows them."""
    if not isinstance(tensor, Tensor) or tensor.is_nested or torch._C._is_tracing():
        return ()
    return tuple(tensor.shape)


@dataclass(frozen=True, eq=False)
class SdpaCall:
    """Arguments of scaled_dot_product_attention."""

    function: ClassVar[str] = "scaled_dot_product_attention"

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    def tensors(self) -> dict[str, Tensor | None]:
        return {"query": self.query, "key": self.key, "value": self.value, "attn_mask": self.attn_mask}

    def sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return shape_of(self.query), shape_of(self.key)

    def words(self) -> str:
        options = ["causal"] if self.is_causal else []
        if self.attn_mask is not None:
            options.append("mask" if self.attn_mask.dtype == torch.bool else "bias")
        if self.dropout_p:
            options.append(f"dropout {self.dropout_p:g}")
        return ", ".join(options)

    def run(self, engine: str) -> Tensor:
        query, key, value = to_autocast(self.query), to_autocast(self.key), to_autocast(self.value)
        mask = None if self.attn_mask is None else to_autocast(self.attn_mask)
        if mask is not None and (mask.dtype not in (torch.bool, query.dtype) or mask.ndim < 2):
            raise ValueError("torch takes a mask of bools or of the query's dtype, with two axes or more")
        with autocast_disabled(query.device):
            inputs = (query, key, value, mask, self.dropout_p, self.is_causal)
            out = sdpa_on(engine, *inputs, self.scale, self.enable_gqa)
            if query.is_contiguous():
                return out
            # torch's fused kernel keeps the query's memory order, and models that merge heads with
            # `.transpose(1, 2).view(...)` rely on it
            kernel = torch._fused_sdp_choice(*inputs, scale=self.scale, enable_gqa=self.enable_gqa)
            # of three axes torch 2.15 says so for a learned mask too, and then does not take it
            if kernel != SDPBackend.FLASH_ATTENTION.value or (mask is not None and mask.requires_grad):
                return out
            order = sorted(range(out.ndim), key=query.stride().__getitem__, reverse=True)
            return out.permute(order).contiguous().permute([order.index(axis) for axis in range(out.ndim)])
