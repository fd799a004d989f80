"""Missed: attention that a model ran and that was not heard, by layer and reason."""

from dataclasses import dataclass

from torch import nn

from regard.engine.fork import fork_waits
from regard.inspection.hooks.names import Names

OWN = "it multiplies a softmax (or the like) of a product of two activations with values itself"
DIRECT = "it calls torch.ops.aten.{} directly"
NESTED = "it gives nested tensors to scaled_dot_product_attention"
NAME = "it calls regard.attend by a name in a file that holds none of the model's classes"
THREAD = "it calls attention in another thread than that of the capture"
OWN_THREAD = f"{OWN}, in another thread than that of the capture"


_lock = fork_waits()


@dataclass(frozen=True)
class Missed:
    """Attention that was not captured: the module that ran it, why, and how often it ran."""

    layer: str
    reason: str
    calls: int = 1


class Watch:
    """Gathers what is missed in the modules of one model, in any thread."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.names = model, Names(model)
        self._calls: dict[tuple[str, str], int] = {}

    def note(self, reason: str) -> None:
        """The module of the model that is running, if there is one, attends unheard."""
        place = self.names.running()
        if place is None:
            return
        with _lock:
            known = (place.path, reason)
            self._calls[known] = self._calls.get(known, 0) + 1

    @property
    def missed(self) -> tuple[Missed, ...]:
        """All so far, in the order in which they first ran."""
        with _lock:
            return tuple(Missed(path, reason, calls) for (path, reason), calls in self._calls.items())
