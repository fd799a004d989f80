"""`regard see TEXT`: what a model attends to in a text, as a picture."""

import argparse
import json
import math
from typing import TYPE_CHECKING, Any

from regard.cli import text
from regard.inspection.text import json_shown, visible

if TYPE_CHECKING:
    from regard import AttentionMatrix, Capture

MOST = 1 << 22  # weights in a JSON document


def run(args: argparse.Namespace) -> int:
    """Show what was asked for; all heads and the most focused one if nothing was."""
    if args.head is not None and args.layer is None:
        raise ValueError("--head needs --layer, the layer that it belongs to")
    found = text.captured(args)
    chosen = _chosen(found, args.layer, args.head)
    if args.json:
        print(_json(found, args.layer, args.head))
    elif args.save is None:
        _print(found, chosen, args.layer, args.head)
    if args.save is not None:
        (found if chosen is None else chosen).save(args.save)
        print(f"wrote {visible(args.save)}")
    return 0


def _chosen(found: "Capture", layer: int | None, head: int | None) -> "AttentionMatrix | None":
    """One layer or head; None stands for all."""
    if layer is None:
        return None
    if not -len(found) <= layer < len(found):
        raise ValueError(f"there is no layer {layer}: the model has {len(found)}, 0 to {len(found) - 1}")
    whole = found[layer]
    heads = whole.shape[-3]
    if head is None:
        return whole[0] if len(whole.shape) == 4 and whole.shape[0] == 1 else whole
    if not -heads <= head < heads:
        raise ValueError(f"there is no head {head} in layer {layer}: it has {heads}, 0 to {heads - 1}")
    return found[layer, head]


def _print(found: "Capture", chosen: "AttentionMatrix | None", layer: int | None, head: int | None) -> None:
    if chosen is not None:
        chosen.show(title=f"layer {layer}" if head is None else f"layer {layer}, head {head}")
        return
    found.show()
    focused, entropy = _focused(found)
    where = ", ".join(f"{name} {number}" for name, number in zip(("layer", "head"), focused, strict=True))
    print()
    found[focused].show(title=f"{where}: the most focused of all, {entropy:.0%} of the entropy there could be")


def _focused(found: "Capture") -> tuple[tuple[int, int], float]:
    """The head whose weights have the least entropy beside the logarithm of the keys that are visible."""
    layer, _, head, entropy = found.heads(which="relative").sort("relative", ascending=True).rows[0]
    assert isinstance(layer, int)
    assert isinstance(head, int)
    assert isinstance(entropy, float)
    return (layer, head), entropy


def _json(found: "Capture", layer: int | None, head: int | None) -> str:
    layers = [number for number, name in enumerate(found.layers) if name not in found.refused]
    wanted = layers if layer is None else [layer % len(found)]
    records: list[dict[str, Any]] = []
    count = 0
    for number in wanted:
        matrix = found[number] if head is None else found[number, head]
        heads = range(matrix.shape[-3]) if head is None else [head % found[number].shape[-3]]
        count += math.prod(matrix.shape[1:])
        if count > MOST:
            raise ValueError(f"more than {MOST:,} weights; choose a layer with --layer, and --save FILE.npz")
        weights = matrix[0].dense()
        for which, part in zip(heads, weights if head is None else [weights], strict=True):
            records.append({"layer": number, "name": found.layers[number], "head": which, "weights": part.tolist()})
    first = found[wanted[0]]
    record = {"queries": first.query_tokens, "keys": first.key_tokens, "heads": records}
    return json_shown(json.dumps(record, ensure_ascii=False))
