"""Parts: a source and what was found in it, of the whole matrix or of some lanes alone."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.engine.request import Request
from regard.inspection.matrix.source import Computed, Source
from regard.inspection.matrix.survey import Ask
from regard.spec.plane import CannotSliceError, Selection


@dataclass
class Part:
    """What handles of one source share."""

    source: Source
    found: dict[Ask, Any] = field(default_factory=dict)
    parts: dict[tuple[int, ...], "Part | None"] = field(default_factory=dict)

    def of(self, lanes: Tensor) -> "Part | None":
        """The part of these lanes, made once; None if only the whole can be computed."""
        key = tuple(lanes.reshape(-1).tolist())
        if key not in self.parts:
            request = None
            if key and isinstance(self.source, Computed):
                with torch.inference_mode(False), torch.enable_grad():  # kept for calls that want gradients
                    request = _sliced(self.source.request, list(key))
            own = None if request is None else Computed(request, self.source, lanes.reshape(-1))  # type: ignore[arg-type]
            self.parts[key] = None if own is None else Part(own)
        return self.parts[key]


def _sliced(request: Request, lanes: list[int]) -> Request | None:
    """The request of one head, or of all heads of one batch row; None for other lanes, or if the spec has no such."""
    plane = request.plane
    if len(lanes) >= plane.batch * plane.heads:
        return None
    row, head = divmod(lanes[0], plane.heads)
    if len(lanes) > 1 and lanes != list(range(row * plane.heads, (row + 1) * plane.heads)):
        return None
    single = head if len(lanes) == 1 and plane.heads > 1 else None
    try:
        return request.sliced(Selection.lanes_of(plane, slice(row, row + 1), single))
    except CannotSliceError:
        return None
