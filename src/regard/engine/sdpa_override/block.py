"""accelerating: a block in which regard's engines answer torch's attention functions, for anybody's model."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import multi_head_attention_forward, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from regard import checks
from regard.engine.attend import ENGINES, asked_engine
from regard.engine.autocast import precision
from regard.engine.sdpa_override.asked import Asked, shape_of, why_not
from regard.engine.sdpa_override.backward import FUNCTIONS, listening
from regard.engine.sdpa_override.fused import Fused
from regard.engine.sdpa_override.multihead import MultiHead
from regard.engine.sdpa_override.nested import fast_path_for_nested
from regard.engine.sdpa_override.report import Call, Report

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
    mode = _Accelerating(_named(engine))
    with mode, fast_path_for_nested(mode.left_nested):
        yield mode.report


def _named(engine: str) -> str:
    source = "engine" if engine != "auto" else "the environment's REGARD_ENGINE"
    engine = asked_engine(engine)
    if engine != "auto" and engine not in ENGINES:
        raise ValueError(f"{source} must be 'auto' or one of {', '.join(ENGINES)}, got {engine!r}")
    return "native" if engine == "auto" else engine


class _Local(threading.local):
    answering = False  # by the innermost block of this thread; those around it keep still


_local = _Local()


class _Accelerating(TorchFunctionMode):
    """Sees every function of torch that is called in its thread. Inside `__torch_function__` it sees nothing."""

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
        if func in FUNCTIONS:
            return listening(self, func, args, kwargs)
        kind = _functions().get(func)
        if kind is None or _local.answering:
            return func(*args, **kwargs)
        _local.answering = True
        try:
            return self._answer(func, kind, args, kwargs)
        finally:
            _local.answering = False

    def left_nested(self, module: nn.Module, tensor: Tensor) -> None:
        """Count a layer that is left to its fast path."""
        reason = "its input is a nested tensor, which torch's fast path alone takes"
        self.report.left_alone[Call("forward", type(module).__name__, (), (), checks.dtype(tensor), "", reason)] += 1

    def _answer(self, func: Any, kind: "type[Asked] | str", args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(kind, str):
            tensors = [tensor for tensor in args if isinstance(tensor, Tensor)]
            self.report.left_alone[_kernel_call(kind, tensors)] += 1
            return func(*args, **kwargs)
        try:
            asked = kind(*args, **kwargs)
        except TypeError:  # torch finds the arguments wrong as well, and says so in its own words
            return func(*args, **kwargs)
        reason = why_not(asked, self.engine)
        if reason is None:
            try:
                out = asked.run(self.engine)
            except (TypeError, ValueError) as error:
                reason = str(error)
            else:
                self.report.served[_call(asked, self.engine)] += 1
                return out
        self.report.left_alone[_call(asked, reason)] += 1
        return func(*args, **kwargs)


@cache
def _functions() -> dict[Any, "type[Asked] | str"]:
    """What is answered, by the arguments it takes; and, by name, the kernels that are only counted."""
    aten = torch.ops.aten
    found: dict[Any, type[Asked] | str] = {
        scaled_dot_product_attention: Fused,
        aten.scaled_dot_product_attention: Fused,
        aten.scaled_dot_product_attention.default: Fused,
        multi_head_attention_forward: MultiHead,
    }
    for name in KERNELS:
        packet = getattr(aten, name)
        found |= {getattr(torch, name, packet): name, packet: name, packet.default: name}
    return found


def _call(asked: Asked, by: str) -> Call:
    dtype = str(precision(asked.query)).removeprefix("torch.")
    return Call(asked.function, _layer(), *asked.sizes(), dtype, asked.words(), by)


def _kernel_call(name: str, tensors: list[Tensor]) -> Call:
    query, key = (*map(shape_of, tensors[:2]), (), ())[:2]
    dtype = checks.dtype(tensors[0]) if tensors else ""
    return Call(name, _layer(), query, key, dtype, "", "a compiled graph, or the model itself, calls it by name")


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
