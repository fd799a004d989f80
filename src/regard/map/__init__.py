"""The map: an attention matrix of any length, panned and zoomed like a street map, and never built."""

from regard.map.atlas import Atlas, Sheet
from regard.map.serve import serve

__all__ = ["Atlas", "Sheet", "serve"]
