"""`regard map`: an attention matrix in the browser, panned and zoomed like a street map."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from regard.cli import compare, text
from regard.cli.options import MODELS
from regard.inspection.text import visible
from regard.map import CaptureView, demo, save, serve
from regard.map.tile_cache import beside_file


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    if args.save is not None and compare.requested(args):
        raise ValueError("--save writes one head; leave the comparison out")
    view, own = _view(args), 0
    if args.compare_text is not None or args.compare_model is not None:
        own = len(view.layers)
        view = view.with_layers_of(_view(_other(args)))
    first = _place(view, 0, own or len(view.layers), args.layer, args.head)
    if args.save is not None:
        return _save(view, args.save, first)
    second = None
    if compare.requested(args):
        layer, head = compare.place(args.compare, args.head)
        second = _place(view, own, len(view.layers) - own, args.layer if layer is None else layer, head or 0)
        sizes = [(view.layers[place[0]].queries, view.layers[place[0]].keys) for place in (first, second)]
        if sizes[0] != sizes[1]:
            told = " and ".join(f"{queries} × {keys}" for queries, keys in sizes)
            raise ValueError(f"the map compares heads of one size, got {told}; regard see --compare draws them both")

    def announce(address: str) -> None:
        print(f"the map is at {address}\n(Ctrl-C stops it)", flush=True)

    if args.new_token and not args.port:
        raise ValueError("--new-token replaces the stored token of a port; it needs --port")
    serve(
        view,
        args.port,
        False if args.no_browser else None,
        first=first,
        compare=second,
        announce=announce,
        new_token=args.new_token,
    )
    return 0


def _place(view: CaptureView, start: int, layers: int, layer: int, head: int) -> tuple[int, int]:
    """A layer of those from `start` on, and a head of it; numbers below 0 count from the end."""
    if not -layers <= layer < layers:
        raise ValueError(f"there is no layer {layer}: there are {layers}, 0 to {layers - 1}")
    heads = view.layers[start + layer % layers].heads
    if not -heads <= head < heads:
        raise ValueError(f"there is no head {head} in layer {layer}: it has {heads}, 0 to {heads - 1}")
    return start + layer % layers, head % heads


def _other(args: argparse.Namespace) -> argparse.Namespace:
    """The same command for the text or model that is compared with."""
    other = argparse.Namespace(**vars(args))
    if args.compare_text is not None:
        if args.demo is not None:
            raise ValueError("--demo shows heads of its own; compare them with --compare L:H")
        other.text, other.file, other.sample = args.compare_text, None, None
    if args.compare_model is not None:
        other.model = args.compare_model
    return other


def _save(view: CaptureView, path: str, place: tuple[int, int]) -> int:
    saved = save(view, path, layer=place[0], head=place[1])
    finest = f"squares of {saved.side} × {saved.side} weights" if saved.side > 1 else "single weights"
    exact = ", with their values" if saved.exact else ""
    print(f"wrote {visible(path)}: {saved.size / 1e6:.1f} MB, the whole matrix down to {finest}{exact}")
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
