"""A capture in a safetensors file: queries, keys and specs of its layers, tokens, and what was refused or missed."""

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.inspection.capture.layer import KINDS, CapturedLayer, PatchGrid, RefusedLayer, TokenLabels
from regard.inspection.hooks.missed import Missed
from regard.inspection.load import load, save, spec_of, written_spec
from regard.inspection.matrix import AttentionMatrix
from regard.inspection.matrix.source import Computed
from regard.inspection.tensor_file import Contents, Gathered, Noted
from regard.spec.serialize import decoded_node, encoded, named_tensor

if TYPE_CHECKING:
    from regard.inspection.capture.result import Capture


def write(
    path: str | os.PathLike[str],
    model: str,
    layers: Sequence[CapturedLayer | RefusedLayer],
    labels: TokenLabels,
    missed: Sequence[Missed] = (),
    name: str = "",
) -> None:
    """Write all of a capture but the model's output."""
    tensors = Gathered()
    records = [_written(number, layer, tensors) for number, layer in enumerate(layers)]
    not_captured = [[each.layer, each.reason, each.calls] for each in missed]
    record = {
        "model": model,
        "name": name or model,
        "tokens": labels.rows,
        "vocabularies": labels.vocabularies,
        "layers": records,
        "missed": not_captured,
    }
    save(path, "capture", record, tensors)


def layers_in(path: str | os.PathLike[str]) -> list[CapturedLayer | RefusedLayer]:
    """The layers of a file that was just written, mapped."""
    capture = load(path)
    assert not isinstance(capture, AttentionMatrix)
    return capture._layers


def read(record: Mapping[str, Any], contents: Contents) -> "Capture":
    """What `write` wrote."""
    from regard.inspection.capture.result import Capture

    layers = [_read(layer, contents) for layer in record["layers"]]
    names = [layer.name for layer in layers]
    if len(set(names)) != len(names) or not names:
        raise ValueError("the names of its layers are missing or not all different")
    tokens = dict(record["tokens"])
    # older files have neither vocabularies nor a name nor what was missed
    labels = TokenLabels.of(tokens.get("", tokens or None)).of_vocabularies(record.get("vocabularies", {}))
    labels.check(layers)
    missed = [_missed(each) for each in record.get("missed", [])]
    model = _text(record["model"])
    return Capture(model, layers, labels, missed=missed, name=_text(record.get("name", model)))


def _written(number: int, layer: CapturedLayer | RefusedLayer, tensors: Gathered) -> dict[str, Any]:
    if isinstance(layer, RefusedLayer):
        return {"name": layer.name, "refused": layer.reason}
    name = f"{number}."
    record = {
        "name": layer.name,
        "mechanism": layer.mechanism,
        "number": layer.number,
        "heads": layer.heads,
        "heads in all": layer.total,
        "shown": layer.shown,
        "kind": layer.kind,
        "grid": layer.grid,
        "rounded": json.loads(encoded(layer.rounded, tensors)),
        "row sums off by": json.loads(encoded(layer.off, tensors)),
    }
    if layer.weights is not None:
        return {**record, "weights": tensors.add(f"{name}weights", layer.weights)}
    source = layer.matrix._whole.source
    assert isinstance(source, Computed)
    request, start = source.request, layer.spec.get("query_start")
    try:
        spec = spec_of(request, request.plane.starts if isinstance(start, Tensor) else start)
    except ValueError as error:
        raise ValueError(f"{layer.name}: {error}") from error
    return {
        **record,
        "query": tensors.add(f"{name}query", layer.query),
        "key": tensors.add(f"{name}key", layer.key),
        "spec": written_spec(spec, name, tensors),
    }


def _read(record: Mapping[str, Any], contents: Contents) -> CapturedLayer | RefusedLayer:
    if "refused" in record:
        return RefusedLayer(_text(record["name"]), _text(record["refused"]))
    tensors = Noted(contents.tensors)
    rounded, grid = decoded_node(record["rounded"], tensors), record["grid"]
    query, key, spec, weights = _weights(record, tensors)
    layer = CapturedLayer(
        _text(record["name"]),
        _text(record["mechanism"]),
        query,
        key,
        spec,
        *_heads(record),
        None if record["shown"] is None else _numbers(record["shown"]),
        _text(record["kind"]),
        None if grid is None else PatchGrid(*_numbers(grid)),
        None if rounded is None else float(rounded),
        float(decoded_node(record["row sums off by"], tensors)),
        weights=weights,
        number=None if record.get("number") is None else _numbers([record["number"]])[0],  # older files have none
    )
    layer.matrix._whole.source.before_use(partial(contents.verify, tensors.names))
    if min(layer.query.ndim, layer.key.ndim) < 4 or layer.kind not in KINDS:
        raise ValueError(f"{layer.name} has no heads, or is {layer.kind!r}")
    if layer.matrix.shape[-3] != len(layer.heads) or len(set(layer.heads)) != len(layer.heads):
        raise ValueError(f"{layer.name} has {layer.matrix.shape[-3]} heads and numbers for {len(layer.heads)}")
    if grid is not None and (min(grid) < 0 or grid[0] * grid[1] + grid[2] != layer.keys):
        raise ValueError(f"{layer.name} has {layer.keys} keys, which are not a grid of {grid}")
    return layer


def _weights(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Any, Tensor | None]:
    """Queries, keys and their spec; or weights."""
    if "weights" not in record:
        spec = {name: decoded_node(node, tensors) for name, node in record["spec"].items()}
        return named_tensor(record["query"], tensors), named_tensor(record["key"], tensors), spec, None
    weights = named_tensor(record["weights"], tensors)
    if weights.ndim != 4 or not weights.is_floating_point():
        raise ValueError(f"weights have shape {tuple(weights.shape)} and type {weights.dtype}")
    return weights[..., :0], weights.mT[..., :0], {}, weights


def _missed(record: Any) -> Missed:
    if not isinstance(record, list) or len(record) != 3:
        raise ValueError("what was missed is not a layer, a reason and a number")
    (calls,) = _numbers(record[2:])
    return Missed(_text(record[0]), _text(record[1]), calls)


def _heads(record: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
    heads, count = _numbers(record["heads"]), record["heads in all"]
    if type(count) is not int or not all(0 <= head < count for head in heads):
        raise ValueError(f"heads {heads} are not among {count}")
    return heads, count


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a name is no text")
    return value


def _numbers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        raise ValueError("a list of numbers is none")
    return tuple(value)
