"""Taps: where attention is listened to, and changed. They are set while someone listens in any thread, and heard in
that one.

A kernel of torch's is met where the dispatcher calls it, a function of Python's where its name is looked up. Neither
hooks nor function modes are used: torch's fast paths shut where there are any.
"""

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch._compile import _disable_dynamo
from torch._higher_order_ops.flex_attention import flex_attention
from torch.utils._python_dispatch import TorchDispatchMode

from regard.engine.attend import attend
from regard.engine.fork import fork_waits
from regard.engine.pieces import attend_pieces
from regard.inspection.hooks import doors, heard, interface, packed, threads
from regard.inspection.hooks.altered import Alter, Altered, Wanted
from regard.inspection.hooks.call import Call
from regard.inspection.hooks.doors import Door
from regard.inspection.hooks.following import Follow
from regard.inspection.hooks.missed import NAME, OWN, OWN_THREAD, THREAD, Watch
from regard.inspection.uninterrupted import uninterrupted

Hear = Callable[[Callable[[], Call]], None]
DEVICES = ("CPU", "CUDA", "MPS", "XPU")
OURS: dict[Any, Callable[..., Call]] = {attend: heard.attended, attend_pieces: heard.attended_pieces}


class _Local(threading.local):
    def __init__(self) -> None:
        self.listening: list[Hear] = []
        self.altering: list[Alter] = []
        self.muted = 0  # inside a call that was heard: what it calls is part of it


_local, _lock = _Local(), fork_waits()
_set: list[Callable[[], None]] = []  # what takes the taps away again
_open = 0


@contextmanager
def listening(model: nn.Module, hear: Hear, watch: Watch | None = None) -> Iterator[None]:
    """Tell `hear` of every call of attention in this thread, each as a function that reads it, and `watch`, if there is
    one, of attention that is computed otherwise or elsewhere."""
    follow = None if watch is None else Follow(model, watch.note, OWN)
    with _tapped(model, _local.listening, hear, follow), ExitStack() as watched:
        if watch is not None:
            watched.callback(threads.begin(watch))
        yield


@contextmanager
def altering(model: nn.Module, alter: Alter) -> Iterator[None]:
    """Ask `alter` at every call of attention in this thread what is to be changed."""
    with _tapped(model, _local.altering, alter):
        yield


@contextmanager
def _tapped(model: nn.Module, those: list[Any], one: Any, follow: Follow | None = None) -> Iterator[None]:
    entered = False
    try:
        with uninterrupted():  # half of the taps would stay set for good
            with _lock:
                _count(1)
                entered = True
                _set.extend(_renamed(module) for module in _written_in(model))
            those.append(one)
        with _Kernels(follow):
            yield
    finally:
        with uninterrupted():
            if entered:
                those[:] = [each for each in those if each is not one]
                _count(-1)


def _called(function: Callable[..., Any], args: Any, kwargs: Any, read: Callable[..., Call], door: Door) -> Any:
    """The call, changed where someone wants that, and after it whoever listens."""
    # a backward pass computes checkpointed layers once more: they are changed again, but were heard the first time
    backward = _in_backward()
    hearing = () if backward else tuple(_local.listening)
    elsewhere = () if backward else tuple(threads.local.elsewhere)
    if _local.muted or not (hearing or elsewhere or _local.altering):
        return function(*args, **kwargs)
    for watch in elsewhere:
        watch.note(THREAD)
    wanted = _wanted()
    _local.muted += 1
    try:
        if wanted:
            change = Altered(lambda: read(*args, **kwargs), wanted)
            out = door(function, args, kwargs, change)
            told = change.heard
        else:
            out = function(*args, **kwargs)

            def told() -> Call:
                return read(*args, **kwargs)

        for hear in hearing:
            hear(told)
        return out
    finally:
        _local.muted -= 1


def _in_backward() -> bool:
    found: int = torch._C._current_graph_task_id()
    return found != -1


def _wanted() -> list[Wanted]:
    found = (alter() for alter in _local.altering)
    return [one for one in found if one is not None]


class _Kernels(TorchDispatchMode):
    """The fast paths of torch's layers, and FlexAttention. All other operators are followed, if they are to be."""

    supports_higher_order_operators = True

    def __init__(self, follow: Follow | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._follow = follow

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """FlexAttention compiles itself, and is met in the graph."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """`_apart` sees to it: torch would load its compiler for it, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aten = torch.ops.aten
        if func is aten._transformer_encoder_layer_fwd.default:
            return _called(func, args, kwargs or {}, heard.encoder_layer, doors.encoder_layer)
        if func is aten._native_multi_head_attention.default:
            return _called(func, args, kwargs or {}, heard.native, doors.native)
        if func is flex_attention:
            return _called(func, args, kwargs or {}, heard.flex, doors.flex)
        out = func(*args, **(kwargs or {}))
        if self._follow is not None and not _local.muted and not _in_backward():
            self._follow.ran(func, args, kwargs or {}, out)
        return out


def _following(watch: Watch) -> _Kernels:
    """A model in another thread than that of its capture."""
    return _Kernels(Follow(watch.model, watch.note, OWN_THREAD))


def _apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function where a compiler, if there is one, does not look into it."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        run = _disable_dynamo(function) if "torch._dynamo" in sys.modules else function
        return run(*args, **kwargs)

    return called


_Kernels.__torch_dispatch__ = _apart(_Kernels.__torch_dispatch__)  # type: ignore[method-assign]


def _count(step: int) -> None:
    """The first who listens sets the taps that all share, the last takes them away."""
    global _open
    with _lock:
        _open += step
        if _open == 1 and step == 1:
            _set.extend((_kernel(), _multi_head(), interface.tapped(_called, lambda: bool(_wanted()))))
            _set.extend((threads.tapped(_following), _unheard()))
        elif _open == 0:
            while _set:
                _set.pop()()


def _kernel() -> Callable[[], None]:
    """In front of scaled_dot_product_attention, which is made of other operators, and then called as it is."""
    operator = torch.ops.aten.scaled_dot_product_attention.default
    library = torch.library.Library("aten", "IMPL")

    def met(*args: Any, **kwargs: Any) -> Any:
        return _called(operator.decompose, args, kwargs, packed.fused, packed.door)

    for device in DEVICES:
        library.impl("scaled_dot_product_attention", met, f"Autograd{device}")
        library.impl("scaled_dot_product_attention", met, device)  # in inference mode
    return library._destroy


def _multi_head() -> Callable[[], None]:
    functional = torch.nn.functional
    original = functional.multi_head_attention_forward

    @wraps(original)
    def met(*args: Any, **kwargs: Any) -> Any:
        return _called(original, args, kwargs, heard.multi_head, doors.multi_head)

    functional.multi_head_attention_forward = met

    def back() -> None:
        functional.multi_head_attention_forward = original

    return back


def _unheard() -> Callable[[], None]:
    """attend by names that were not found: it asks once in every call whether it is transformed."""
    module: Any = importlib.import_module("regard.engine.attend")
    original = module.transformed

    def met() -> Any:
        if not _local.muted and not _in_backward():
            for watch in (*threads.local.here, *threads.local.elsewhere):
                watch.note(NAME)
        return original()

    module.transformed = met

    def back() -> None:
        module.transformed = original

    return back


def _written_in(model: nn.Module) -> list[Any]:
    """The files where attend may be called by name: regard's own, and those of the model's classes."""
    importlib.import_module("regard.nn.attention")
    ours = {name for name in sys.modules if name.split(".")[0] == "regard"}
    names = ours | {type(module).__module__ for module in model.modules()}
    return [sys.modules[name] for name in sorted(names) if name in sys.modules and name not in _OWN]


_OWN = (__name__, "regard.engine.attend", "regard.engine.pieces")


def _renamed(module: Any) -> Callable[[], None]:
    """attend and attend_pieces under whatever names they have there."""
    found = {name: value for name, value in vars(module).items() if callable(value) and _is_ours(value)}
    for name, function in found.items():
        setattr(module, name, _ours(function, OURS[function]))

    def back() -> None:
        for name, function in found.items():
            setattr(module, name, function)

    return back


def _is_ours(value: Any) -> bool:
    return value is attend or value is attend_pieces


def _ours(function: Callable[..., Any], read: Callable[..., Call]) -> Callable[..., Any]:
    @wraps(function)
    def met(*args: Any, **kwargs: Any) -> Any:
        return _called(function, args, kwargs, read, doors.plain)

    return met
