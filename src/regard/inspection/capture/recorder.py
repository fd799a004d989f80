"""Recorder: hears calls of attention, checks that they can be computed again, and keeps them by layer."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.inspection.capture.choice import Choice
from regard.inspection.capture.compare import moved
from regard.inspection.capture.heads import Chosen, grouped
from regard.inspection.capture.kept import Kept, Refused
from regard.inspection.capture.layer import Layer
from regard.inspection.capture.slots import filled
from regard.inspection.capture.spill import Spill
from regard.inspection.hooks.call import Call, Store
from regard.inspection.hooks.compare import compare
from regard.inspection.hooks.names import Names, Place


class Recorder:
    """Layers in the order of their first call. A further call of a layer has a number: `encoder.0#2`."""

    def __init__(self, model: nn.Module, choice: Choice, spill: Spill) -> None:
        self.layers: list[Layer | Refused] = []
        self.paths: dict[str, int] = {}  # of the modules that ran, kept or not, and which was the how-manieth
        self._choice, self._spill = choice, spill
        self._names, self._store = Names(model), Store()
        self._last: dict[str, Layer | Refused] = {}
        self._times: dict[str, int] = {}
        self._orders: dict[int, Tensor | None] = {}  # of the batch rows, by the number of the step

    def hear(self, read: Callable[[], Call]) -> None:
        """Keep a call of one of the model's modules."""
        place = self._names.running()
        if place is None:
            return
        number = self.paths.setdefault(place.path, len(self.paths))
        if not self._choice.wants(number, place.path):
            return
        try:
            with torch.inference_mode(False), torch.no_grad():
                call = read()
                compare(call)
                self._keep(place, grouped(call))
        except (TypeError, ValueError) as error:
            reason = str(error)
            self._new(place.path, lambda name: Refused(name, reason))
        self._spill.watch(part for layer in self._live() for part in (layer.query, layer.key))

    def kept(self) -> list[Kept | Refused]:
        """All layers as they are now. Joined steps are in the file again if they were before."""
        return [layer.kept() if isinstance(layer, Layer) else layer for layer in self.layers]

    def done(self) -> None:
        """Let go of the model and of its tensors."""
        self._names, self._store = Names(nn.Identity()), Store()
        for layer in self._live():
            for part in (layer.query, layer.key):
                if part.split:
                    (whole,) = self._spill.move([part.whole()])
                    part.replace(whole)
        self._spill.close()

    def _live(self) -> list[Layer]:
        return [layer for layer in self.layers if isinstance(layer, Layer)]

    def _keep(self, place: Place, call: Call) -> None:
        last = self._last.get(place.path)
        taken = self._choice.taken(call)
        if isinstance(last, Layer):
            found = taken._replace(call=filled(taken.call, len(last.key)))
            goes = last.goes_on(found.call, place.generating)
            if goes is not None:
                order = self._order(last, goes.fresh, goes.order)
                count = found.call.key.shape[-2]
                new = replace(found.call, key=found.call.key[..., count - goes.fresh :, :])
                last.add(self._store.kept(new), count, order)
                self._round(last, call, found)
                return
        found = taken._replace(call=filled(taken.call, 0))
        kept = found._replace(call=self._store.kept(found.call))
        self._round(self._new(place.path, lambda name: Layer(name, kept)), call, found)

    def _order(self, layer: Layer, fresh: int, order: Tensor | None) -> Tensor | None:
        """Keys that stay do not tell that beams changed places; those that grow do, and were heard before."""
        if not fresh:
            return self._orders.get(layer.steps)
        self._orders[layer.steps] = order
        return order

    def _round(self, layer: Layer | Refused, call: Call, found: Chosen) -> None:
        if isinstance(layer, Layer) and self._choice.rounds(call.query):
            layer.rounded = max(layer.rounded or 0.0, moved(call, found))

    def _new(self, path: str, make: Callable[[str], Layer | Refused]) -> Layer | Refused:
        times = self._times[path] = self._times.get(path, 0) + 1
        self._last[path] = make(path if times == 1 else f"{path}#{times}")
        self.layers.append(self._last[path])
        return self._last[path]
