"""Heads: the numbers that tell the heads of a captured model apart."""

from regard.inspection.heads.table import head_table, layer_table

__all__ = ["head_table", "layer_table"]
