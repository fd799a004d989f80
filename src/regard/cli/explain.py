"""`regard explain`: every step of a small attention with its numbers, from a JSON file or the built-in example."""

import argparse
import json
import shutil
import sys

from regard.cli import specfile
from regard.inspection.explain import explain
from regard.inspection.files import replace
from regard.inspection.text import json_shown

# Three words of width 2 and identity projections: small enough to check by hand.
EXAMPLE = {
    "tokens": ["Word 1", "Word 2", "Word 3"],
    "x": [[1, 0], [0, 1], [1, 1]],
    "w_query": [[1, 0], [0, 1]],
    "w_key": [[1, 0], [0, 1]],
    "w_value": [[1, 0], [0, 1]],
}


def run(args: argparse.Namespace) -> int:
    """Print or write the explanation."""
    given = specfile.arguments(EXAMPLE) if args.example else specfile.read(args.file)
    explanation = explain(**given, row=args.row, head=args.head, batch=args.batch, digits=args.digits)
    if args.format == "json":
        text = json_shown(json.dumps(explanation.to_dict(), ensure_ascii=False, indent=1, allow_nan=False)) + "\n"
    elif args.format == "markdown":
        text = explanation.markdown()
    elif args.format == "latex":
        text = explanation.latex()
    else:  # as wide as the terminal, up to a line that can still be read; a file gets 100 columns
        to_terminal = args.out is None and sys.stdout.isatty()
        text = explanation.text(min(shutil.get_terminal_size().columns, 120) if to_terminal else 100)
    if args.out is None:
        sys.stdout.write(text)
        return 0
    if not args.out.parent.is_dir():
        raise ValueError(f"cannot write {args.out}: there is no folder {args.out.parent}; create it first")
    if args.out.is_dir():
        raise ValueError(f"cannot write {args.out}: it is a folder; name a file in it")
    replace(args.out, text.encode())
    return 0
