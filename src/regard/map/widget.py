"""The map in a notebook: the same page as a widget; tiles travel over the notebook's own connection."""

from collections.abc import Iterable
from typing import Any

import anywidget
import traitlets

from regard import checks
from regard.inspection.capture import Capture
from regard.inspection.matrix import AttentionMatrix
from regard.map.atlas import Atlas
from regard.map.bundle import script, style
from regard.map.comm import Comm
from regard.map.viewer import Viewer


class Map(anywidget.AnyWidget):  # type: ignore[misc]
    """A map of an atlas, a capture or a matrix; the last line of a cell shows it.

    >>> from regard.map.widget import Map  # doctest: +SKIP
    >>> Map(regard.matrix(q, k, mask="causal"))  # doctest: +SKIP
    """

    _esm = script()
    _css = style()
    height = traitlets.Int(640).tag(sync=True)

    def __init__(
        self, shown: "Atlas | Capture | AttentionMatrix | Iterable[AttentionMatrix]", *, height: int = 640
    ) -> None:
        super().__init__(height=checks.whole("height", height, 100))
        self._comm = Comm(Viewer(Atlas.of(shown)), self._tell)
        self.on_msg(self._heard)

    def close(self) -> None:
        """Take it off the page and end what goes on in the background."""
        if hasattr(self, "_comm"):
            self._comm.close()
        super().close()

    def _heard(self, _: object, content: Any, buffers: object) -> None:
        self._comm.hear(content)

    def _tell(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        self.send(message, buffers or None)
