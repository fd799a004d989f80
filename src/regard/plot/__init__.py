"""Pictures of records: `render` and `table` for a terminal, `draw` for matplotlib, `save` for files."""

from regard.inspection.table import text_table as table
from regard.plot.render import draw, render
from regard.plot.save import save

__all__ = ["draw", "render", "save", "table"]
