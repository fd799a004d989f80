"""Missed: attention that a model runs and that is not intercepted, by module and reason."""

import sys
import threading
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from regard.engine.fork import fork_waits
from regard.inspection.hooks.call import ModuleNames

OWN = "it multiplies a softmax (or the like) of a product of two activations with values itself"
DIRECT = "it calls torch.ops.aten.{} directly"
NESTED = "it gives nested tensors to scaled_dot_product_attention"
NAME = "it calls regard.attend by a name in a file that holds none of the model's classes"
THREAD = "it calls attention in another thread than that of the capture"
OWN_THREAD = f"{OWN}, in another thread than that of the capture"
INTERNAL = ("regard.inspection", "torch.utils._contextlib")  # modules between a user's call and a warning
NAMED = 8  # layers listed for each reason


@dataclass(frozen=True)
class Missed:
    """Attention that was not captured: the module that ran it, why, and how often it ran."""

    layer: str
    reason: str
    calls: int = 1


def listed(missed: Sequence[Missed]) -> str:
    """The layers by reason, as text."""
    reasons: dict[str, list[str]] = {}
    for each in missed:
        reasons.setdefault(each.reason, []).append(each.layer)
    texts = []
    for reason, layers in reasons.items():
        more = f" and {len(layers) - NAMED} more" if len(layers) > NAMED else ""
        texts.append(f"{', '.join(layers[:NAMED])}{more} ({reason})")
    return "; ".join(texts)


def warn(message: str) -> None:
    """Warn at the first caller outside of this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(INTERNAL):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


_lock = fork_waits()


class Watch:
    """Collects what is missed in the modules of one model, in any thread. `block` is what texts call the block."""

    def __init__(self, model: nn.Module, block: str = "capture") -> None:
        self.model, self.names = model, ModuleNames(model)
        self._block = block
        self._calls: Counter[tuple[str, str]] = Counter()

    def note(self, reason: str) -> None:
        """Count a call of the module of the model that is running, if there is one."""
        running = self.names.running()
        if running is not None:
            with _lock:
                self._calls[running.path, reason.replace("the capture", f"the {self._block}")] += 1

    @property
    def missed(self) -> tuple[Missed, ...]:
        """All so far, in the order in which they first ran."""
        with _lock:
            return tuple(Missed(path, reason, calls) for (path, reason), calls in self._calls.items())


class _Watches(threading.local):
    def __init__(self) -> None:
        self.here: list[Watch] = []  # their block was opened in this thread
        self.elsewhere: list[Watch] = []  # their model runs in this thread, their block was opened in another


local = _Watches()
open_watches: list[Watch] = []  # of all threads
