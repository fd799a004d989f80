"""Pictures of records: `render` and `table` for a terminal, `draw` for matplotlib, `save` for files."""

from regard.inspection.aligned import aligned as table
from regard.plot.figure import draw
from regard.plot.save import save
from regard.plot.terminal import render

__all__ = ["draw", "render", "save", "table"]
