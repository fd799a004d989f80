"""`regard explain`: every step of a small attention with its numbers, from a JSON file or the built-in example."""

import argparse
import json
import shutil
import sys
from pathlib import Path

from regard.cli import specfile
from regard.inspection.explain import Explanation, explain
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
    written = _written(explanation, args.format, _width(args.out))
    if args.out is None:
        sys.stdout.write(written)
    else:
        _save(args.out, written)
    return 0


def _written(explanation: Explanation, form: str, width: int) -> str:
    if form == "json":
        return json_shown(json.dumps(explanation.to_dict(), ensure_ascii=False, indent=1, allow_nan=False)) + "\n"
    if form == "markdown":
        return explanation.markdown()
    return explanation.latex() if form == "latex" else explanation.text(width)


def _width(out: Path | None) -> int:
    """Columns for text: what the terminal has, up to a line that can still be read; a file gets 100."""
    if out is not None or not sys.stdout.isatty():
        return 100
    return min(shutil.get_terminal_size().columns, 120)


def _save(path: Path, text: str) -> None:
    from regard.inspection.files import replace

    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {path.parent}; create it first")
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a folder; name a file in it")
    replace(path, text.encode())
