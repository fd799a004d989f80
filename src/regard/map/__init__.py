"""The map: an attention matrix of any length, panned and zoomed like a street map, without building the matrix."""

from regard.map.export import save
from regard.map.serve import serve
from regard.map.views import CaptureView, LayerView

__all__ = ["CaptureView", "LayerView", "save", "serve"]
