"""`regard heads TEXT`: what the heads of a model do in a text, as a table."""

import argparse
import math

from regard.cli import text
from regard.inspection.text import json_shown, visible


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    table = text.captured(args).heads()
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
    else:  # without names, which are long, and without columns that the text or the model does not have
        numbers = ((column, table[column]) for column in table.columns)
        empty = [name for name, cells in numbers if all(isinstance(cell, float) and math.isnan(cell) for cell in cells)]
        print(table.without("name", *empty).text())
    return 0
