"""Pictures of records: `render` and `table` for a terminal, `draw` for matplotlib, `save` for files."""

from regard.inspection.aligned import aligned as table
from regard.show.figure import draw
from regard.show.save import save
from regard.show.terminal import render

__all__ = ["draw", "render", "save", "table"]
