"""accelerating: a context in which regard's engines answer torch's attention functions, in any model."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.functional import multi_head_attention_forward, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from regard import checks
from regard.engine.attend import engine_name
from regard.engine.context import autocast_dtype
from regard.engine.fork import fork_waits
from regard.engine.sdpa_override.calls import KINDS, InterceptedCall, Report, SdpaCall, TorchCall, shape_of, why_not
from regard.engine.sdpa_override.multihead import MultiHeadCall

KERNELS = (
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_native_multi_head_attention",
    "_transformer_encoder_layer_fwd",
)


@contextmanager
def accelerating(engine: str = "auto") -> Iterator[Report]:
    """Answer every scaled_dot_product_attention and nn.MultiheadAttention of this thread by `engine`, while the block
    runs; what it cannot do is left to torch. The `Report` counts both, and says why. "auto" is the native engine.

    >>> import torch, regard
    >>> layer = torch.nn.MultiheadAttention(64, 4, batch_first=True)
    >>> x = torch.randn(2, 128, 64)
    >>> with regard.accelerating() as served:
    ...     out, _ = layer(x, x, x, need_weights=False)
    >>> served
    <Report: 1 call served, 0 left alone>
    """
    engine = engine_name(engine)
    mode = SdpaOverride("native" if engine == "auto" else engine)
    with mode, fast_path_for_nested(mode.left_nested):
        yield mode.report


class _Thread(threading.local):
    answering = False  # True while the innermost block of this thread runs an engine


_thread = _Thread()


class SdpaOverride(TorchFunctionMode):
    """Intercepts torch's attention functions in its thread. torch disables the mode inside `__torch_function__`."""

    def __init__(self, engine: str) -> None:
        super().__init__()
        self.engine = engine
        self.report = Report()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_dynamo_compiling():  # traces this very line: the graph gets torch's function
            return func(*args, **kwargs)
        if func in BACKWARD:
            return run_backward(self, func, args, kwargs)
        kind = _functions().get(func)
        if kind is None or _thread.answering:
            return func(*args, **kwargs)
        _thread.answering = True
        try:
            return self._answer(func, kind, args, kwargs)
        finally:
            _thread.answering = False

    def left_nested(self, module: nn.Module, tensor: Tensor) -> None:
        """Count a layer call that torch's fast path answers."""
        reason = "its input is a nested tensor, which torch's fast path alone takes"
        call = InterceptedCall("forward", type(module).__name__, (), (), checks.dtype(tensor), "", reason)
        self.report.left_alone[call] += 1

    def _answer(self, func: Any, kind: "type[TorchCall] | str", args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(kind, str):
            tensors = [tensor for tensor in args if isinstance(tensor, Tensor)]
            query, key = (*map(shape_of, tensors[:2]), (), ())[:2]
            dtype = checks.dtype(tensors[0]) if tensors else ""
            reason = "a compiled graph, or the model itself, calls it by name"
            self.report.left_alone[InterceptedCall(kind, _layer(), query, key, dtype, "", reason)] += 1
            return func(*args, **kwargs)
        try:
            call = kind(*args, **kwargs)
        except TypeError:  # torch finds the arguments wrong as well, and says so in its own words
            return func(*args, **kwargs)
        refusal = why_not(call, self.engine)
        if refusal is None:
            try:
                out = call.run(self.engine)
            except (TypeError, ValueError) as error:
                refusal = str(error)
            else:
                self.report.served[_intercepted(call, self.engine)] += 1
                return out
        self.report.left_alone[_intercepted(call, refusal)] += 1
        return func(*args, **kwargs)


@cache
def _functions() -> dict[Any, "type[TorchCall] | str"]:
    """Intercepted functions: the class that parses the call, or the name of a kernel that is only counted."""
    aten = torch.ops.aten
    functions: dict[Any, type[TorchCall] | str] = {
        scaled_dot_product_attention: SdpaCall,
        aten.scaled_dot_product_attention: SdpaCall,
        aten.scaled_dot_product_attention.default: SdpaCall,
        multi_head_attention_forward: MultiHeadCall,
    }
    for name in KERNELS:
        packet = getattr(aten, name)
        functions |= {getattr(torch, name, packet): name, packet: name, packet.default: name}
    return functions


def _intercepted(call: TorchCall, by: str) -> InterceptedCall:
    dtype = str(autocast_dtype(call.query)).removeprefix("torch.")
    return InterceptedCall(call.function, _layer(), *call.sizes(), dtype, call.words(), by)


def _layer() -> str:
    """The class whose `forward` is nearest on the stack; if there is none, the nearest function outside torch."""
    nearest = ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name, module = frame.f_code.co_qualname, frame.f_globals.get("__name__", "")
        own = module.startswith("torch._") or name.endswith("<locals>.forward")
        if name.endswith(".forward") and not own:
            return name.split(".")[-2]
        if not nearest and module.split(".")[0] not in ("torch", "regard"):
            nearest = name
        frame = frame.f_back
    return nearest


# torch alone computes nested tensors, in its fast path, which it disables while a TorchFunctionMode is active
FAST = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
NestedCallback = Callable[[nn.Module, Tensor], None]


class _Nested(threading.local):
    def __init__(self) -> None:
        self.callbacks: list[NestedCallback] = []  # of the open blocks of this thread


_nested, _lock = _Nested(), fork_waits()
_open_blocks = 0  # in all threads


@contextmanager
def fast_path_for_nested(callback: NestedCallback) -> Iterator[None]:
    """In this thread, hide all modes from a layer that gets a nested tensor. `callback` is called first."""
    _count(1)
    _nested.callbacks.append(callback)
    try:
        yield
    finally:
        _nested.callbacks.pop()
        _count(-1)


def _count(step: int) -> None:
    """Patch `__call__` of these layers when the first block opens; restore it when the last closes."""
    global _open_blocks
    with _lock:
        _open_blocks += step
        for layer in FAST:
            if _open_blocks == 1 and step == 1:
                layer.__call__ = _call_layer  # type: ignore[method-assign]
            elif _open_blocks == 0:
                del layer.__call__


def _call_layer(layer: nn.Module, *args: Any, **kwargs: Any) -> Any:
    if torch.compiler.is_dynamo_compiling() or not _nested.callbacks or not torch._C._is_torch_function_enabled():
        return nn.Module.__call__(layer, *args, **kwargs)
    given = args[0] if args else next(iter(kwargs.values()), None)
    if not isinstance(given, Tensor) or not given.is_nested:
        return nn.Module.__call__(layer, *args, **kwargs)
    _nested.callbacks[-1](layer, given)
    with torch._C.DisableTorchFunction():
        return nn.Module.__call__(layer, *args, **kwargs)


BACKWARD = (Tensor.backward, torch.autograd.backward, torch.autograd.grad)


def run_backward(mode: TorchFunctionMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a backward function with the mode active.

    torch disables a mode while it handles a call with tensor arguments. The tensors' gradient edges mean the same and
    do not disable it.
    """
    edges = [_edges(argument) for argument in args[: 2 if func is torch.autograd.grad else 1]]
    named = {name: _edges(value) if name == "inputs" and value is not None else value for name, value in kwargs.items()}
    lost = None in edges or (named.get("inputs") is None and kwargs.get("inputs") is not None)
    if lost or kwargs.get("materialize_grads"):
        return func(*args, **kwargs)
    if func is Tensor.backward:
        func, named["grad_tensors"] = torch.autograd.backward, named.pop("gradient", None)
    with mode:
        return func(*edges, *args[len(edges) :], **named)


def _edges(given: Any) -> tuple[GradientEdge, ...] | None:
    """The gradient edge of each tensor; None if one has none, which torch handles or reports."""
    edges = []
    for one in (given,) if isinstance(given, Tensor | GradientEdge) else given:
        if isinstance(one, Tensor):
            if type(one) not in KINDS or not one.requires_grad:
                return None
            one = get_gradient_edge(one)
        edges.append(one)
    return tuple(edges)
