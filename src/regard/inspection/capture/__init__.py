"""Capture: the attention of a model that runs, layer by layer, without changing what it computes."""

from regard.inspection.capture.result import Capture
from regard.inspection.capture.run import capture
from regard.inspection.hooks.missed import Missed

__all__ = ["Capture", "Missed", "capture"]
