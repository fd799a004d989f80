"""Intercept: hooks on every function that computes attention, set while a block is open in any thread.

Kernels of torch are intercepted where the dispatcher calls them, Python functions where their name is looked up. Module
hooks and function modes are not used, because torch disables its fast paths where there are any.
"""

import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch._compile import _disable_dynamo
from torch._higher_order_ops.flex_attention import flex_attention
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode

from regard.engine.attend import attend
from regard.engine.fork import fork_waits
from regard.engine.partial import attend_chunks
from regard.engine.sdpa_override.override import SdpaOverride
from regard.inspection.hooks import missed, parse, rerun, transformers
from regard.inspection.hooks.call import AttentionCall
from regard.inspection.hooks.missed import NAME, OWN, OWN_THREAD, THREAD, OperatorTrace, Watch
from regard.inspection.hooks.modified_call import CallEdit, Modification, Modify
from regard.inspection.hooks.rerun import Rerun

OnCall = Callable[[Callable[[], AttentionCall]], None]
DEVICES = ("CPU", "CUDA", "MPS", "XPU")
OURS: dict[Any, Callable[..., AttentionCall]] = {attend: parse.attend, attend_chunks: parse.attend_chunks}
_DEFINED_IN = (__name__, "regard.engine.attend", "regard.engine.partial")


class _Local(threading.local):
    def __init__(self) -> None:
        self.callbacks: list[OnCall] = []
        self.modifiers: list[Modify] = []
        self.muted = 0  # above 0 inside an intercepted call: what it calls is part of it


_local, _lock = _Local(), fork_waits()
_removers: list[Callable[[], None]] = []  # each removes a hook
_open_blocks = 0


@contextmanager
def intercepting(model: nn.Module, on_call: OnCall, watch: Watch | None = None) -> Iterator[None]:
    """Call `on_call` after every attention call in this thread with a function that parses the call. `watch`
    collects attention that is not intercepted."""
    with _hooked(model, _local.callbacks, on_call, watch):
        yield


@contextmanager
def modifying(model: nn.Module, modify: Modify, watch: Watch | None = None) -> Iterator[None]:
    """Ask `modify` at every attention call in this thread for a modification. `watch` as in `intercepting`."""
    with _hooked(model, _local.modifiers, modify, watch):
        yield


def accelerated() -> bool:
    """Whether the block `regard.accelerating()` is open; it replaces attention calls before they are intercepted."""
    return any(isinstance(mode, SdpaOverride) for mode in _get_current_function_mode_stack())


@contextmanager
def _hooked(model: nn.Module, entries: list[Any], entry: Any, watch: Watch | None) -> Iterator[None]:
    entered = False
    trace = None if watch is None else OperatorTrace(model, watch.note, OWN)
    try:
        with uninterrupted():  # otherwise some of the hooks could stay for good
            with _lock:
                _count(1)
                entered = True
                _removers.append(_hook_names(_modules_of(model)))
            entries.append(entry)
        with _Kernels(trace), ExitStack() as stack:
            if watch is not None:
                stack.callback(missed.watch_threads(watch))
            yield
    finally:
        with uninterrupted():
            if entered:
                entries[:] = [each for each in entries if each is not entry]
                _count(-1)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Raise a Ctrl-C of the block at its end, for changes of shared state that must not be made by half.

    A handler that somebody else installed stays. Python interrupts the main thread only.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    interrupted = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True

    try:
        signal.signal(signal.SIGINT, note)
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if interrupted:
            raise KeyboardInterrupt


def _intercepted(
    function: Callable[..., Any], args: Any, kwargs: Any, parser: Callable[..., AttentionCall], run: Rerun
) -> Any:
    """Run an attention call, modified if a block asks for it, and then the callbacks."""
    # a backward pass computes checkpointed layers again: modify them again, but report them once
    backward = _in_backward()
    callbacks = () if backward else tuple(_local.callbacks)
    elsewhere = () if backward else tuple(missed.local.elsewhere)
    if _local.muted or not (callbacks or elsewhere or _local.modifiers):
        return function(*args, **kwargs)
    for watch in elsewhere:
        watch.note(THREAD)
    modifications = _modifications()
    _local.muted += 1
    try:
        if modifications:
            edit = CallEdit(lambda: parser(*args, **kwargs), modifications)
            out = run(function, args, kwargs, edit)
            read = edit.final_call
        else:
            out = function(*args, **kwargs)

            def read() -> AttentionCall:
                return parser(*args, **kwargs)

        for on_call in callbacks:
            on_call(read)
        return out
    finally:
        _local.muted -= 1


def _in_backward() -> bool:
    task: int = torch._C._current_graph_task_id()
    return task != -1


def _modifications() -> list[Modification]:
    return [found for modify in _local.modifiers if (found := modify()) is not None]


class _Kernels(TorchDispatchMode):
    """Intercepts the fast paths of torch's layers and FlexAttention; traces all other operators if `trace` is given."""

    supports_higher_order_operators = True

    def __init__(self, trace: OperatorTrace | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._trace = trace

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """FlexAttention compiles itself, and is intercepted in the graph."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """`_outside_dynamo` does this; torch would load its compiler for it, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aten = torch.ops.aten
        if func is aten._transformer_encoder_layer_fwd.default:
            return _intercepted(func, args, kwargs or {}, parse.encoder_layer, rerun.encoder_layer)
        if func is aten._native_multi_head_attention.default:
            return _intercepted(func, args, kwargs or {}, parse.native, rerun.native)
        if func is flex_attention:
            return _intercepted(func, args, kwargs or {}, parse.flex, rerun.flex)
        out = func(*args, **(kwargs or {}))
        if self._trace is not None and not _local.muted and not _in_backward():
            self._trace.record(func, args, kwargs or {}, out)
        return out


def _traced_elsewhere(watch: Watch) -> _Kernels:
    """For a model that runs in another thread than its block."""
    return _Kernels(OperatorTrace(watch.model, watch.note, OWN_THREAD))


def _outside_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, not traced by torch's compiler if that is loaded."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        run = _disable_dynamo(function) if "torch._dynamo" in sys.modules else function
        return run(*args, **kwargs)

    return called


_Kernels.__torch_dispatch__ = _outside_dynamo(_Kernels.__torch_dispatch__)  # type: ignore[method-assign]


def _count(step: int) -> None:
    """The first open block sets the hooks that all blocks share, the last one removes them."""
    global _open_blocks
    with _lock:
        _open_blocks += step
        if _open_blocks == 1 and step == 1:
            _removers.extend((_hook_sdpa(), _hook_multi_head()))
            _removers.append(transformers.install(_intercepted, lambda: bool(_modifications())))
            _removers.extend((missed.install(_traced_elsewhere), _hook_attend()))
        elif _open_blocks == 0:
            while _removers:
                _removers.pop()()


def _hook_sdpa() -> Callable[[], None]:
    """Intercept scaled_dot_product_attention before the dispatcher splits it into other operators."""
    operator = torch.ops.aten.scaled_dot_product_attention.default
    library = torch.library.Library("aten", "IMPL")

    def hook(*args: Any, **kwargs: Any) -> Any:
        return _intercepted(operator.decompose, args, kwargs, transformers.parse_sdpa, transformers.rerun_sdpa)

    for device in DEVICES:
        library.impl("scaled_dot_product_attention", hook, f"Autograd{device}")
        library.impl("scaled_dot_product_attention", hook, device)  # in inference mode
    return library._destroy


def _hook_multi_head() -> Callable[[], None]:
    functional = torch.nn.functional
    return _replace(
        functional,
        "multi_head_attention_forward",
        _hooked_function(functional.multi_head_attention_forward, parse.multi_head, rerun.multi_head),
    )


def _hook_attend() -> Callable[[], None]:
    """Note calls of attend by names that were not replaced: every call of it asks once whether it is transformed."""
    module: Any = importlib.import_module("regard.engine.attend")
    original = module.active_transform

    def hook() -> Any:
        if not _local.muted and not _in_backward():
            for watch in (*missed.local.here, *missed.local.elsewhere):
                watch.note(NAME)
        return original()

    return _replace(module, "active_transform", hook)


def _hook_names(modules: list[Any]) -> Callable[[], None]:
    """Intercept attend and attend_chunks under all names that they have in Python modules."""
    stack = ExitStack()
    for module in modules:
        for name, value in list(vars(module).items()):
            if value is attend or value is attend_chunks:
                stack.callback(_replace(module, name, _hooked_function(value, OURS[value], rerun.plain)))
    return stack.close


def _hooked_function(
    function: Callable[..., Any], parser: Callable[..., AttentionCall], run: Rerun
) -> Callable[..., Any]:
    @wraps(function)
    def hook(*args: Any, **kwargs: Any) -> Any:
        return _intercepted(function, args, kwargs, parser, run)

    return hook


def _replace(owner: Any, name: str, new: Any) -> Callable[[], None]:
    """Set an attribute; returns a function that restores it."""
    original = getattr(owner, name)
    setattr(owner, name, new)
    return lambda: setattr(owner, name, original)


def _modules_of(model: nn.Module) -> list[Any]:
    """The Python modules where attend may be called by name: those of regard and of the model's classes."""
    importlib.import_module("regard.nn.attention")
    getattr(sys.modules["regard"], "attend", None)  # the package loads its names at their first use
    ours = {name for name in sys.modules if name.split(".")[0] == "regard"}
    names = ours | {type(module).__module__ for module in model.modules()}
    return [sys.modules[name] for name in sorted(names) if name in sys.modules and name not in _DEFINED_IN]
