"""`regard COMMAND ...`: finds the command, loads its file, runs it."""

import argparse
import errno
import importlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from typing import NoReturn, TypeGuard

import regard
from regard.cli.options import COMMANDS
from regard.inspection.text import visible


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors hold nothing that a terminal would obey."""

    def error(self, message: str) -> NoReturn:
        super().error(visible(message))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; wrong usage exits with 2, a clear error with 1."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that cannot show √ must not end the command
    args = _parser(argv).parse_args(argv)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = partial(_print_warning, args.command)
            code = int(importlib.import_module(f"regard.cli.{args.command}").run(args))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        _mute()
        return 0
    except (ValueError, TypeError, OSError, ImportError) as error:
        if _of_output(error):
            _mute()
            error = OSError(f"cannot write to standard output: {error.strerror}")
        print(visible(f"regard {args.command}: {error}"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _print_warning(command: str, message: Warning | str, *_: object, **__: object) -> None:
    """A warning as one line, without the place in the code that it comes from."""
    print(visible(f"regard {command}: {message}"), file=sys.stderr)


def _parser(argv: Sequence[str]) -> Parser:
    """The parser of all commands, with the options of the one that is named."""
    parser = Parser(prog="regard", description="Compute, see and understand attention.")
    parser.add_argument("--version", action="version", version=f"regard {regard.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (text, add_options) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if argv[:1] == [name]:
            add_options(command)
    return parser


def _of_output(error: Exception) -> TypeGuard[OSError]:
    """Whether the place that the output goes to took no more; errors of files are explained where they are written."""
    full = (errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC))
    return isinstance(error, OSError) and error.errno in full and error.filename is None and error.strerror is not None


def _mute() -> None:
    """Send what is left of the output nowhere, so that ending the process does not try again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
