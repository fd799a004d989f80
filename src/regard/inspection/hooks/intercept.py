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
from functools import partial, wraps
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
from regard.inspection.hooks.missed import NAME, OWN, OWN_THREAD, THREAD, Watch
from regard.inspection.hooks.modified_call import CallEdit, Modify
from regard.inspection.hooks.rerun import Rerun
from regard.inspection.hooks.trace import OnCall, OperatorTrace

DEVICES = ("CPU", "CUDA", "MPS", "XPU")
OURS: dict[Any, Callable[..., AttentionCall]] = {attend: parse.attend, attend_chunks: parse.attend_chunks}
KERNELS: dict[Any, tuple[Callable[..., AttentionCall], Rerun]] = {
    torch.ops.aten._transformer_encoder_layer_fwd.default: (parse.encoder_layer, rerun.encoder_layer),
    torch.ops.aten._native_multi_head_attention.default: (parse.native, rerun.native),
    flex_attention: (parse.flex, rerun.flex),
}
FOLDED = (torch.ops.aten.linear.default, torch.ops.aten.matmul.default)
_DEFINED_IN = (__name__, "regard.engine.attend", "regard.engine.partial")


class _Local(threading.local):
    def __init__(self) -> None:
        self.callbacks: list[OnCall] = []
        self.modifiers: list[Modify] = []
        self.muted = 0  # above 0 inside an intercepted call: what it calls is part of it


_local, _lock = _Local(), fork_waits()
_hooks = ExitStack()  # its callbacks remove the hooks of all open blocks
_open_blocks = 0


@contextmanager
def intercepting(
    model: nn.Module,
    on_call: OnCall | None = None,
    watch: Watch | None = None,
    *,
    modify: Modify | None = None,
    on_handwritten: OnCall | None = None,
) -> Iterator[None]:
    """Intercept the attention calls of this thread.

    `modify` is called before each of them and may return a modification. `on_call` is called after each of them with a
    function that parses the call, `on_handwritten` after each attention that the model computes by other operators.
    `watch` collects attention of the model that reaches neither.
    """
    global _open_blocks
    trace = None if watch is None else OperatorTrace(model, watch.note, OWN, on_handwritten)
    entered = False
    entries: list[tuple[list[Any], Any]] = [(_local.callbacks, on_call), (_local.modifiers, modify)]
    try:
        with uninterrupted():  # otherwise some of the hooks could stay for good
            with _lock:
                _open_blocks += 1
                entered = True
                if _open_blocks == 1:
                    _set_hooks()
                _hook_names(model)
            for functions, function in entries:
                if function is not None:
                    functions.append(function)
        with _Kernels(trace), ExitStack() as stack:
            if watch is not None:
                for watches in (missed.open_watches, missed.local.here):
                    watches.append(watch)
                    stack.callback(watches.remove, watch)
            yield
    finally:
        with uninterrupted():
            if entered:
                for functions, function in entries:
                    functions[:] = [each for each in functions if each is not function]
                with _lock:
                    _open_blocks -= 1
                    if not _open_blocks:
                        _hooks.close()


def accelerated() -> bool:
    """Whether the block `regard.accelerating()` is open; it replaces attention calls before they are intercepted."""
    return any(isinstance(mode, SdpaOverride) for mode in _get_current_function_mode_stack())


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


def _hooked(function: Callable[..., Any], parser: Callable[..., AttentionCall], run: Rerun) -> Callable[..., Any]:
    """The function, modified if a block asks for it; it calls the callbacks after each call."""

    @wraps(function)
    def hook(*args: Any, **kwargs: Any) -> Any:
        # a backward pass computes checkpointed layers again: modify them again, but report them once
        backward = torch._C._current_graph_task_id() != -1
        callbacks = () if backward else tuple(_local.callbacks)
        elsewhere = () if backward else tuple(missed.local.elsewhere)
        if _local.muted or not (callbacks or elsewhere or _local.modifiers):
            return function(*args, **kwargs)
        for watch in elsewhere:
            watch.note(THREAD)
        modifications = [modification for modify in _local.modifiers if (modification := modify()) is not None]
        read: Callable[[], AttentionCall] = partial(parser, *args, **kwargs)
        _local.muted += 1
        try:
            if modifications:
                edit = CallEdit(read, modifications)
                out, read = run(function, args, kwargs, edit), edit.final_call
            else:
                out = function(*args, **kwargs)
            for on_call in callbacks:
                on_call(read)
            return out
        finally:
            _local.muted -= 1

    return hook


def _skip_frame(function: Callable[..., Any]) -> None:
    """Let torch.compile run a function as it is, without loading the compiler; what it calls is compiled as before."""
    from torch._C._dynamo import eval_frame

    skip, default = eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT
    eval_frame.set_code_exec_strategy(function.__code__, eval_frame._FrameExecStrategy(skip, default))


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
        """`__torch_dispatch__` does this; torch would load its compiler for it, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        run = _disable_dynamo(_Kernels._run) if "torch._dynamo" in sys.modules else _Kernels._run
        return run(self, func, args, kwargs or {})

    if not hasattr(
        TorchDispatchMode, "_should_skip_dynamo"
    ):  # torch 2.9 would trace the method above for FlexAttention
        _skip_frame(__torch_dispatch__)

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func in KERNELS:
            return _hooked(func, *KERNELS[func])(*args, **kwargs)
        if self._trace is None or _local.muted or torch._C._current_graph_task_id() != -1:
            return _unchanged(func, args, kwargs)
        self._trace.before(func, args)
        out = _unchanged(func, args, kwargs)
        _local.muted += 1  # blocks around this one do not see what it computes
        try:
            self._trace.record(func, args, kwargs, out)
        finally:
            _local.muted -= 1
        return out


def _unchanged(func: Any, args: Any, kwargs: Any) -> Any:
    """Call an operator so that it chooses the kernels that it chooses without a mode.

    A product with a parameter is folded to two axes only where the transposed parameter is known to require gradients,
    which a view does not tell while a mode hides the key that makes views.
    """
    if func in FOLDED and torch.is_inference_mode_enabled():
        with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False):
            return func(*args, **kwargs)
    return func(*args, **kwargs)


def _set_hooks() -> None:
    """Set the hooks that all blocks share."""
    operator = torch.ops.aten.scaled_dot_product_attention.default
    sdpa = _hooked(operator.decompose, parse.sdpa, rerun.sdpa)
    library = torch.library.Library("aten", "IMPL")
    for device in DEVICES:  # before the dispatcher splits it into other operators
        library.impl("scaled_dot_product_attention", sdpa, f"Autograd{device}")
        library.impl("scaled_dot_product_attention", sdpa, device)  # in inference mode
    _hooks.callback(library._destroy)
    functional = torch.nn.functional
    multi_head = _hooked(functional.multi_head_attention_forward, parse.multi_head, rerun.multi_head)
    _replace(functional, "multi_head_attention_forward", multi_head)
    if "transformers" in sys.modules:
        remove = transformers.install(_hooked, lambda: any(modify() is not None for modify in _local.modifiers))
        _hooks.callback(remove)
    module_call = nn.Module.__call__

    @wraps(module_call)
    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """Trace watched models in threads that have no block of theirs: modes of torch hold for one thread."""
        if torch.compiler.is_compiling():
            return module_call(self, *args, **kwargs)
        elsewhere = missed.local.elsewhere
        new = [watch for watch in missed.open_watches if watch not in missed.local.here and watch not in elsewhere]
        new = [watch for watch in new if self in watch.names]
        if not new:
            return module_call(self, *args, **kwargs)
        with ExitStack() as stack:
            for watch in new:
                elsewhere.append(watch)
                stack.callback(elsewhere.remove, watch)
                stack.enter_context(_Kernels(OperatorTrace(watch.model, watch.note, OWN_THREAD)))
            return module_call(self, *args, **kwargs)

    _replace(nn.Module, "__call__", call)
    # attend may be called by a name that was not replaced: every call of it checks once for a function transform
    module: Any = importlib.import_module("regard.engine.attend")
    active_transform = module.active_transform

    def note_attend() -> Any:
        if not _local.muted and torch._C._current_graph_task_id() == -1:
            for watch in (*missed.local.here, *missed.local.elsewhere):
                watch.note(NAME)
        return active_transform()

    _replace(module, "active_transform", note_attend)


def _hook_names(model: nn.Module) -> None:
    """Intercept attend and attend_chunks under all names in the modules of regard and of the model's classes."""
    importlib.import_module("regard.nn.attention")
    getattr(sys.modules["regard"], "attend", None)  # the package loads its names at their first use
    ours = {name for name in sys.modules if name.split(".")[0] == "regard"}
    names = ours | {type(module).__module__ for module in model.modules()}
    for module in [sys.modules[name] for name in sorted(names) if name in sys.modules and name not in _DEFINED_IN]:
        for name, value in list(vars(module).items()):
            if value is attend or value is attend_chunks:
                _replace(module, name, _hooked(value, OURS[value], rerun.plain))


def _replace(owner: Any, name: str, new: Any) -> None:
    """Set an attribute until the hooks are removed."""
    _hooks.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, new)
