"""Parts: a source and what was found in it, of the whole matrix or of some lanes alone."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.inspection.matrix.narrow import narrowed
from regard.inspection.matrix.source import Computed, Source
from regard.inspection.matrix.survey import Ask


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
                    request = narrowed(self.source.request, list(key))
            own = None if request is None else Computed(request, self.source, lanes.reshape(-1))  # type: ignore[arg-type]
            self.parts[key] = None if own is None else Part(own)
        return self.parts[key]
