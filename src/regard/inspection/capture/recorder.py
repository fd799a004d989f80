"""Recorder: hears calls of attention, checks that they can be computed again, and keeps them by layer."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.engine.autocast import off
from regard.inspection.capture.layer import Layer
from regard.inspection.listening.call import Call, Store
from regard.inspection.listening.names import Names
from regard.inspection.matrix import matrix

LOOSEST = 0.25  # weights in half precision may be this far off, however large the logits are


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
                _compare(call)
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


def _compare(call: Call) -> None:
    """Refuse a call whose weights, where the model has them, are not ours."""
    with off(call.query.device):
        ours = matrix(call.query, call.key, **call.spec)
        if call.weights is None:
            return
        theirs = call.weights
        if ours.shape != theirs.shape:
            raise ValueError(f"its weights are {tuple(theirs.shape)}, and queries and keys give {ours.shape}")
        wrong = (ours.dense(limit=None) - theirs * (1.0 - call.rate)).abs()
        worst = (
            float(torch.where(theirs == 0, 0.0, wrong).max() if call.rate else wrong.max()) if wrong.numel() else 0.0
        )
        if not worst <= (allowed := _allowed(call)):
            raise ValueError(
                f"its weights are {worst:.1e} away from those of its queries, keys, mask and scale, more than "
                f"{allowed:.1e}: it does something to them that cannot be seen"
            )


def _allowed(call: Call) -> float:
    """What rounding explains: a logit is as exact as its size allows."""
    assert call.weights is not None
    scale: float = getattr(call.spec.get("score"), "scale", None) or call.query.shape[-1] ** -0.5
    size = _longest(call.query) * _longest(call.key) * abs(scale)
    # models take the softmax in float32, whatever they are in
    eps = max(torch.finfo(dtype).eps for dtype in (call.weights.dtype, call.query.dtype, torch.float32))
    return min(LOOSEST, 8.0 * eps * (1.0 + size))


def _longest(tensor: Tensor) -> float:
    return float(tensor.float().norm(dim=-1).max()) if tensor.numel() else 0.0
