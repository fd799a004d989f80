"""`regard map`: an attention matrix in the browser, panned and zoomed like a street map."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from regard.cli import text
from regard.cli.options import MODELS
from regard.inspection.text import visible
from regard.map import CaptureView, demo, serve
from regard.map.tile_cache import beside_file


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    view = _view(args)
    layers, layer = len(view.layers), args.layer
    if not -layers <= layer < layers:
        raise ValueError(f"there is no layer {layer}: there are {layers}, 0 to {layers - 1}")
    heads = view.layers[layer].heads
    if not -heads <= args.head < heads:
        raise ValueError(f"there is no head {args.head} in layer {layer}: it has {heads}, 0 to {heads - 1}")
    first = (layer % layers, args.head % heads)

    def announce(address: str) -> None:
        print(f"the map is at {address}\n(Ctrl-C stops it)", flush=True)

    if args.new_token and not args.port:
        raise ValueError("--new-token replaces the stored token of a port; it needs --port")
    serve(
        view,
        args.port,
        False if args.no_browser else None,
        first=first,
        announce=announce,
        new_token=args.new_token,
    )
    return 0


def _view(args: argparse.Namespace) -> CaptureView:
    if args.demo is not None:
        if (args.text, args.file, args.sample) != (None, None, None):
            raise ValueError("--demo shows heads of its own; leave the text out")
        if args.model is not None:
            raise ValueError(f"--demo shows heads of its own; leave --model {args.model} out")
        return demo.view(args.demo)
    if (saved := text.weights_path(args)) is not None:
        path = Path(saved)  # its coarse levels are stored beside it
        view = CaptureView.of(
            text.opened_weights(args), path.name if args.array is None else f"{path.name}: {args.array}"
        )
        for note in view.notes:
            print(visible(note), file=sys.stderr)
        return replace(view, folder=beside_file(path.absolute()))
    if args.array is not None:
        raise ValueError(f"--array chooses among the arrays of a file of weights; leave --array {args.array} out")
    if (args.text, args.file, args.sample) == (None, None, None):
        raise ValueError(
            'say what to show: a text, as in "The cat sleeps on the mat", a file, a saved capture, weights (own.npy), '
            "or --demo 100000"
        )
    title = f"{Path(args.model or MODELS[0]).name}: {text.source(args)}"
    return CaptureView.of(text.captured(args), title)
