"""`regard map`: an attention matrix in the browser, panned and zoomed like a street map."""

import argparse

from regard.map import Atlas, demo, serve


def arguments(parser: argparse.ArgumentParser) -> None:
    """What to show and where."""
    parser.add_argument("--demo", type=int, metavar="N", help="heads of known structure over N tokens")
    parser.add_argument("--port", type=int, default=0, help="any that is free if left out")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    serve(_atlas(args), args.port, False if args.no_browser else None, told)
    return 0


def told(address: str) -> None:
    """The address, once."""
    print(f"the map is at {address}\n(Ctrl-C stops it)", flush=True)


def _atlas(args: argparse.Namespace) -> Atlas:
    if args.demo is None:
        raise ValueError("say what to show: --demo 4000")
    return demo.atlas(args.demo)
