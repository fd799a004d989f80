"""`regard see TEXT`: what a model attends to in a text, as a picture."""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli import compare, text
from regard.cli.options import SAVED, picture_options
from regard.inspection.text import json_shown, visible
from regard.inspection.tokens import token_texts

if TYPE_CHECKING:
    from regard import AttentionMatrix, Capture

MOST = 1 << 22  # weights in a JSON document


def run(args: argparse.Namespace) -> int:
    """Show a layer or a head; without these, all heads and the most focused one."""
    if compare.requested(args):
        return compare.run(args)
    if args.side_by_side:
        raise ValueError("--side-by-side needs something to compare: --compare, --compare-model or --compare-text")
    if (path := text.weights_path(args)) is not None:
        from regard.inspection.weights_file import WeightsFile

        opened = text.opened_weights(args)
        if isinstance(opened, WeightsFile):
            for note in opened.notes:
                print(visible(note), file=sys.stderr)
            return _see_weights(opened.matrix, path, args)
    _layer_of_head(args)
    _check_kind(args)
    capture = text.captured(args)
    chosen = _chosen(capture, args.layer, args.head)
    if args.json:
        print(_json(capture, args.layer, args.head))
    if args.save is not None:
        saved = capture if chosen is None else chosen
        saved.save(args.save, **({} if args.save.lower().endswith(SAVED) else picture_options(args)))
        print(f"wrote {visible(args.save)}")
    elif not args.json:
        _show(capture, chosen, args)
    return 0


def _check_kind(args: argparse.Namespace) -> None:
    """Refuse a kind of picture that does not fit a layer, a head, or all of them, before a model is loaded."""
    if args.kind in ("overview", "profiles", "statistics") and args.layer is not None:
        raise ValueError(f"--kind {args.kind} shows all layers; leave --layer and --head out")
    if args.kind in ("heatmap", "lines", "alignment") and args.layer is None:
        raise ValueError(f"--kind {args.kind} shows a layer or a head; add --layer N, or --layer N --head M")
    suffix = "" if args.save is None else Path(args.save).suffix.lower()
    if suffix in (".npz", ".csv") and args.layer is None:
        raise ValueError(f"{suffix[1:]} holds the weights of a layer or a head; add --layer N, or save as {SAVED[1:]}")
    if args.kind not in (None, "heatmap", "overview") and suffix not in ("", ".png", ".svg", ".pdf"):
        raise ValueError(f"--kind {args.kind} is saved as png, svg or pdf; got {suffix or args.save}, leave --kind out")


def _layer_of_head(args: argparse.Namespace) -> None:
    if args.head is not None and args.layer is None:
        raise ValueError("--head needs --layer, the layer that it belongs to")


def _see_weights(weights: "AttentionMatrix", path: str, args: argparse.Namespace) -> int:
    """Weights of a file, (query, key), (head, query, key) or (layer, …, head, query, key)."""
    if weights.ndim > 3:
        _layer_of_head(args)
    chosen, title = weights, [Path(path).name]
    for name, number, axis, axes in (("layer", args.layer, 0, 4), ("head", args.head, -3, 3)):
        if number is None:
            continue
        if weights.ndim < axes:
            raise ValueError(f"{path} has no axis of {name}s: its shape is {weights.shape}; leave --{name} out")
        count = weights.shape[axis]
        if not -count <= number < count:
            raise ValueError(f"there is no {name} {number} in {path}: it has {count}, 0 to {count - 1}")
        chosen = chosen[number] if axis == 0 else chosen[..., number, :, :]
        title.append(f"{name} {number % count}")
    if args.json:
        if math.prod(chosen.shape) > MOST:
            raise ValueError(f"more than {MOST:,} weights; choose a layer with --layer and a head with --head")
        record = {"queries": chosen.query_tokens, "keys": chosen.key_tokens, "weights": chosen.dense().tolist()}
        plain = json.loads(json.dumps(record), parse_constant=lambda _: None)  # JSON has no NaN
        print(json_shown(json.dumps(plain, ensure_ascii=False)))
    view = (
        picture_options(args)
        if args.title is not None
        else {**picture_options(args), "title": visible(", ".join(title))}
    )
    if args.kind in ("overview", "profiles", "statistics"):
        raise ValueError(f"--kind {args.kind} is of a model's layers; {path} holds weights, shown as heatmap or lines")
    if args.save is not None:
        chosen.save(args.save, **({} if args.save.lower().endswith(SAVED) else view))
        print(f"wrote {visible(args.save)}")
    elif not args.json:
        chosen.show(**view)
    return 0


def _chosen(capture: "Capture", layer: int | None, head: int | None) -> "AttentionMatrix | None":
    """One layer or head; None stands for all."""
    if layer is None:
        return None
    if not -len(capture) <= layer < len(capture):
        raise ValueError(f"there is no layer {layer}: the model has {len(capture)}, 0 to {len(capture) - 1}")
    whole = capture[layer]
    heads = whole.shape[-3]
    if head is None:
        return whole[0] if len(whole.shape) == 4 and whole.shape[0] == 1 else whole
    if not -heads <= head < heads:
        raise ValueError(f"there is no head {head} in layer {layer}: it has {heads}, 0 to {heads - 1}")
    return capture[layer, head]


def _show(capture: "Capture", chosen: "AttentionMatrix | None", args: argparse.Namespace) -> None:
    from regard.plot.attention import AttentionPicture, print_attention
    from regard.plot.capture import print_capture

    view = picture_options(args)
    if chosen is not None:
        print_attention(chosen, AttentionPicture.of(**view), command=True)
        return
    print_capture(capture, command=True, **view)
    if args.kind is not None:
        return
    most_focused = next(iter(capture.heads(which="relative").sort("relative", ascending=True)))
    place = (int(most_focused["layer"]), int(most_focused["head"]))  # type: ignore[arg-type]
    print(f"\nThe most focused head has {most_focused['relative']:.0%} of the entropy that it could have:")
    print_attention(capture[place], AttentionPicture.of(**view), command=True)


def _json(capture: "Capture", layer: int | None, head: int | None) -> str:
    layers = [number for number, name in enumerate(capture.layers) if name not in capture.refused]
    numbers = layers if layer is None else [layer % len(capture)]
    records: list[dict[str, Any]] = []
    count = 0
    for number in numbers:
        matrix = capture[number] if head is None else capture[number, head]
        heads = range(matrix.shape[-3]) if head is None else [head % capture[number].shape[-3]]
        count += math.prod(matrix.shape[1:])
        if count > MOST:
            raise ValueError(f"more than {MOST:,} weights; choose a layer with --layer, and --save FILE.npz")
        weights = matrix[0].dense()
        for which, part in zip(heads, weights if head is None else [weights], strict=True):
            records.append({"layer": number, "name": capture.layers[number], "head": which, "weights": part.tolist()})
    first = capture[numbers[0]]
    tokens = [None if side is None else token_texts(side) for side in (first.query_tokens, first.key_tokens)]
    record = {"queries": tokens[0], "keys": tokens[1], "heads": records}
    return json_shown(json.dumps(record, ensure_ascii=False))
