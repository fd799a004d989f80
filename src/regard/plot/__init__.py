"""Pictures of records: `render` and `table` for a terminal, `draw` and `save` for figures; `compare` for matrices."""

from typing import TYPE_CHECKING, Any

from regard.inspection.table import text_table as table
from regard.plot.render import draw, render
from regard.plot.save import save

if TYPE_CHECKING:
    from regard.plot.comparison import Comparison, compare

__all__ = ["Comparison", "compare", "draw", "render", "save", "table"]


def __getattr__(name: str) -> Any:
    """Matrices need torch, which records do not: what compares them is loaded when it is first used."""
    if name in ("Comparison", "compare"):
        from regard.plot import comparison

        return getattr(comparison, name)
    raise AttributeError(f"module 'regard.plot' has no attribute {name!r}")
