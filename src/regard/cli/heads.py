"""`regard heads TEXT`: what the heads of a model do in a text, as a table."""

import argparse
import math
import shutil
from dataclasses import replace

from regard.cli import text
from regard.inspection.table import Cell, Table
from regard.inspection.text import json_shown, visible
from regard.progress import display

NEAREST = ("nearest_layer", "nearest_head", "nearest_similarity")


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    capture = text.captured(args)
    with display(lines=True):
        table = capture.heads()
    if args.sort is not None:
        if args.sort not in table.columns:
            raise ValueError(f"there is no column {args.sort!r}; there are {', '.join(table.columns)}")
        table = table.sort(args.sort)
    if args.top is not None and args.top < 1:
        raise ValueError(f"--top is how many rows to show, at least 1; got {args.top}")
    if args.top is not None:
        table = table.head(args.top)
    if args.save is not None:
        table.save(args.save)
        print(f"wrote {visible(args.save)}")
    elif args.json:
        print(json_shown(table.to_json() or ""), end="")
    else:
        width = shutil.get_terminal_size().columns
        print(_printed(table).text(width, keys=("layer", "head")))
    return 0


def _printed(table: Table) -> Table:
    """Without names, which are long, and columns that the text or the model does not have; the nearest head in one."""
    numbers = ((column, table[column]) for column in table.columns)
    empty = [name for name, cells in numbers if all(isinstance(cell, float) and math.isnan(cell) for cell in cells)]
    gone = {"name", *empty}
    if {*NEAREST} <= {*table.columns} - gone:
        nearest = [_nearest(*cells) for cells in zip(*(table[column] for column in NEAREST), strict=True)]
        rows = [[*row, cell] for row, cell in zip(table.rows, nearest, strict=True)]
        table = replace(table, columns=[*table.columns, "nearest"], rows=rows)
        gone |= {*NEAREST}
    return table.without(*(column for column in table.columns if column in gone))


def _nearest(layer: Cell, head: Cell, similarity: Cell) -> str:
    if not isinstance(similarity, float) or math.isnan(similarity):
        return ""
    return f"{layer}:{head} {similarity:.2f}"
