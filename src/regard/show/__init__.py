"""Pictures of records: `render` and `table` for a terminal, `draw` for matplotlib, `save` for files."""

from regard.show.figure import draw
from regard.show.save import save
from regard.show.table import table
from regard.show.terminal import render

__all__ = ["draw", "render", "save", "table"]
