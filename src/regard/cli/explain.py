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
FORMATS = ("text", "markdown", "latex", "json")


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("file", nargs="?", type=Path, metavar="FILE.json", help="the attention to explain")
    what.add_argument("--example", action="store_true", help="three words of width 2, identity projections")
    parser.add_argument("--format", choices=FORMATS, default="text", help="text unless told otherwise")
    parser.add_argument("--row", type=int, default=0, metavar="N", help="the query to work out; the first is 0")
    parser.add_argument("--head", type=int, default=0, metavar="N", help="the head to explain; the first is 0")
    parser.add_argument("--batch", type=int, default=0, metavar="N", help="the batch row to explain; the first is 0")
    parser.add_argument("--digits", type=int, default=4, metavar="N", help="decimals to show, 1 to 10; 4 unless told")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write there instead of to the terminal")


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
