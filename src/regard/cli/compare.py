"""`regard see … --compare`: two heads, layers, models or texts, subtracted or side by side."""

import argparse
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.cli import text
from regard.cli.options import MODELS, picture_options
from regard.inspection.text import fit, json_shown, visible

if TYPE_CHECKING:
    from regard import AttentionMatrix, Capture

MOST = 1 << 22  # weights in a JSON document
_LONGEST = 40  # letters of a text in a name


@dataclass(frozen=True)
class Side:
    """One of the two: what was read, where in the model, and what it is called by."""

    capture: "Capture"
    layer: int
    head: int | None
    words: tuple[str, ...]

    @property
    def matrix(self) -> "AttentionMatrix":
        """The weights of the layer or head, in the first row of the batch."""
        matrix = self.capture[self.layer] if self.head is None else self.capture[self.layer, self.head]
        while matrix.ndim > (2 if self.head is not None else 3):
            matrix = matrix[0]
        return matrix

    @property
    def name(self) -> str:
        """Its text and model, where the two differ in them, then layer and head."""
        parts = [f"layer {self.layer}"] + ([] if self.head is None else [f"head {self.head}"])
        return ", ".join([*self.words, *parts])


def requested(args: argparse.Namespace) -> bool:
    """Whether an option of the comparison was given."""
    return (args.compare, args.compare_model, args.compare_text) != (None, None, None)


def run(args: argparse.Namespace) -> int:
    """The difference of two that have one shape, else both side by side."""
    from regard.plot.comparison import compare

    first, second = _sides(args)
    a, b = first.matrix, second.matrix
    beside = args.side_by_side or a.shape != b.shape
    most = " (of all heads, the rows of this one differ most)" if args.layer is None else ""
    title = f"{first.name}, less {second.name}{most}"
    if args.json:
        print(_json(first, second))
    options = picture_options(args)
    if beside:
        other = [f"--{name.replace('_', '-')}" for name in options if name != "title"]
        if other:
            raise ValueError(f"two pictures side by side take no {', '.join(other)}; leave it out")
        shown = compare(a, b, names=(visible(first.name), visible(second.name)), title=args.title or most.strip(" ()"))
        if args.save is not None:
            shown.save(args.save)
        elif not args.json:
            if not args.side_by_side:
                print(f"side by side, because the shapes differ: {a.shape} and {b.shape}")
            shown.show()
    elif args.save is not None:
        (a - b).save(args.save, **{"title": visible(title), **options})
    elif not args.json:
        (a - b).show(**{"title": visible(title), **options})
    if args.save is not None:
        print(f"wrote {visible(args.save)}")
    return 0


def _sides(args: argparse.Namespace) -> tuple[Side, Side]:
    if args.head is not None and args.layer is None:
        raise ValueError("--head needs --layer, the layer that it belongs to")
    layer, head = place(args.compare, args.head)
    if args.compare is not None and args.layer is None:
        raise ValueError("--compare needs --layer: the layer that layer or head is compared with")
    other = argparse.Namespace(**vars(args))
    if args.compare_text is not None:
        other.text, other.file, other.sample = args.compare_text, None, None
    if args.compare_model is not None:
        other.model = args.compare_model
    captures = [text.captured(args)]
    same = args.compare_text is None and args.compare_model is None
    captures.append(captures[0] if same else text.captured(other))
    words: list[tuple[str, ...]] = []
    for side in (args, other):
        read = f"“{fit(text.source(side), _LONGEST)}”"
        words.append(
            (
                *((read,) if args.compare_text is not None else ()),
                *((side.model or MODELS[0],) if args.compare_model is not None else ()),
            )
        )
    if args.layer is None:
        number, which = _differing_most(*captures)
        return Side(captures[0], number, which, words[0]), Side(captures[1], number, which, words[1])
    layer = args.layer if layer is None else layer
    sides = []
    for capture, number, which, said in zip(captures, (args.layer, layer), (args.head, head), words, strict=True):
        _check(capture, number, which)
        sides.append(Side(capture, number % len(capture), which, said))
    return sides[0], sides[1]


def place(given: str | None, head: int | None) -> tuple[int | None, int | None]:
    """Layer and head of "LAYER" or "LAYER:HEAD"; without a head, the one that is compared with it."""
    if given is None:
        return None, head
    match = re.fullmatch(r"(-?\d+)(?::(-?\d+))?", given.strip())
    if match is None:
        raise ValueError(f"--compare takes LAYER or LAYER:HEAD, as in 3 or 3:1; got {given!r}")
    if match[2] is not None and head is None:
        raise ValueError(f"--compare {given} names a head; name the one it is compared with too: --head N")
    return int(match[1]), head if match[2] is None else int(match[2])


def _check(capture: "Capture", layer: int, head: int | None) -> None:
    if not -len(capture) <= layer < len(capture):
        raise ValueError(f"there is no layer {layer}: the model has {len(capture)}, 0 to {len(capture) - 1}")
    heads = capture.numbers(layer)
    if head is not None and head not in heads and not -len(heads) <= head < 0:
        raise ValueError(f"there is no head {head} in layer {layer}: it has {len(heads)}, {heads[0]} to {heads[-1]}")


def _differing_most(first: "Capture", second: "Capture") -> tuple[int, int]:
    """The layer and head whose rows differ most, on average over the queries."""
    best, place = -1.0, (0, 0)
    for number in range(min(len(first), len(second))):
        if {first.layers[number]} & first.refused.keys() or {second.layers[number]} & second.refused.keys():
            continue
        pair = first[number], second[number]
        if pair[0].shape != pair[1].shape:
            raise ValueError(
                f"layer {number} has {pair[0].shape} (batch, head, query, key) in one and {pair[1].shape} in the "
                "other, so no head differs most: choose one with --layer and --head"
            )
        means = (pair[0] - pair[1])[0].variation().mean(-1).tolist()
        for head, mean in zip(first.numbers(number), means, strict=True):
            if mean > best:
                best, place = mean, (number, head)
    return place


def _json(first: Side, second: Side) -> str:
    a, b = first.matrix, second.matrix
    if math.prod(a.shape) + math.prod(b.shape) > MOST:
        raise ValueError(f"more than {MOST:,} weights; choose a head with --head, and --save FILE.npz")
    record: dict[str, object] = {}
    for name, side, matrix in (("first", first, a), ("second", second, b)):
        record[name] = {
            "name": side.name,
            "queries": matrix.query_tokens,
            "keys": matrix.key_tokens,
            "weights": matrix.dense().tolist(),
        }
    record["difference"] = (a - b).dense().tolist() if a.shape == b.shape else None
    return json_shown(json.dumps(record, ensure_ascii=False))
