"""Recorder: hears calls of attention, checks that they can be computed again, and keeps them by layer."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from regard.inspection.capture.layer import Layer
from regard.inspection.listening.call import Call, Store
from regard.inspection.listening.compare import compare
from regard.inspection.listening.names import Names


@dataclass(frozen=True)
class Refused:
    """A call that cannot be computed again, and why."""

    name: str
    reason: str


class Recorder:
    """Layers in the order of their first call. A further call of a layer has a number: `encoder.0#2`."""

    def __init__(self, model: nn.Module) -> None:
        self.layers: list[Layer | Refused] = []
        self._names, self._store = Names(model), Store()
        self._last: dict[str, Layer | Refused] = {}
        self._times: dict[str, int] = {}

    def hear(self, read: Callable[[], Call]) -> None:
        """Keep a call of one of the model's modules."""
        place = self._names.running()
        if place is None:
            return
        try:
            with torch.no_grad():
                call = read()
                compare(call)
                call = self._store.kept(call)
        except (TypeError, ValueError) as error:
            reason = str(error)
            self._new(place.path, lambda name: Refused(name, reason))
            return
        last = self._last.get(place.path)
        fresh = last.fresh(call, place.generating) if isinstance(last, Layer) else None
        if isinstance(last, Layer) and fresh is not None:
            last.add(call, fresh)
        else:
            self._new(place.path, lambda name: Layer(name, call))

    def done(self) -> None:
        """Let go of the model and of its tensors."""
        self._names, self._store = Names(nn.Identity()), Store()

    def _new(self, path: str, make: Callable[[str], Layer | Refused]) -> None:
        times = self._times[path] = self._times.get(path, 0) + 1
        self._last[path] = make(path if times == 1 else f"{path}#{times}")
        self.layers.append(self._last[path])
