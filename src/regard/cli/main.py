"""`regard COMMAND ...`: finds the command, loads its file, runs it."""

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence

import regard

# name: one line of help; the code is regard.cli.<name>, with `arguments(parser)` and `run(args) -> int`
COMMANDS = {
    "see": "what a model attends to in a text, as a picture",
    "heads": "what each head of a model does in a text, as a table",
    "explain": "every step of a small attention with its numbers",
    "lab": "experiments that reproduce the known tables",
    "exercise": "tasks with a check and a worked answer",
    "models": "real models, fetched by name: list, get, path, remove",
    "map": "an attention matrix in the browser, panned and zoomed like a street map",
    "bench": "time, memory and error beside plain torch",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; wrong usage exits with 2, a clear error with 1."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that cannot show √ must not end the command
    parser = argparse.ArgumentParser(prog="regard", description="Compute, see and understand attention.")
    parser.add_argument("--version", action="version", version=f"regard {regard.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if argv[:1] == [name]:
            importlib.import_module(f"regard.cli.{name}").arguments(command)
    args = parser.parse_args(argv)
    try:
        return int(importlib.import_module(f"regard.cli.{args.command}").run(args))
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"regard {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
