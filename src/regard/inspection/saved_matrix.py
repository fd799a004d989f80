"""An AttentionMatrix in a file: queries, keys and the spec of its weights, or the weights where they were given."""

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.engine.request import Request
from regard.inspection import pair_tables
from regard.inspection.matrix.handle import AttentionMatrix, matrix
from regard.inspection.matrix.indexing import Tokens
from regard.inspection.matrix.source import Computed, Stored, taken
from regard.inspection.tensor_file import Contents, Gathered
from regard.spec.biases import Dense as DenseBias
from regard.spec.masks import Dense as DenseMask
from regard.spec.part import Part
from regard.spec.serialize import decoded_node, encoded, named_tensor, storable

MOST = 1 << 28  # entries of a mask or bias that is written out because a function made it


def written(found: AttentionMatrix, tensors: Gathered, name: str = "") -> dict[str, Any]:
    """The matrix as JSON; its tensors are gathered."""
    tokens = {"query_tokens": found.query_tokens, "key_tokens": found.key_tokens}
    if isinstance(found._source, Stored):
        return {**tokens, "weights": tensors.add(f"{name}weights", taken(found._source.weights, found._maps))}
    assert isinstance(found._source, Computed)
    asked, lanes = found._source.request, found._maps
    start = asked.plane.starts if isinstance(found._query_start, Tensor) else found._query_start
    return {
        **tokens,
        "query": tensors.add(f"{name}query", asked.query.flatten(1, 2)),
        "key": tensors.add(f"{name}key", asked.key.squeeze(2)),
        "spec": written_spec(spec_of(asked, start), name, tensors),
        "lanes": lanes.reshape(-1).tolist(),
        "shape": list(lanes.shape),
    }


def written_spec(spec: Mapping[str, Any], name: str, tensors: Gathered) -> dict[str, Any]:
    """A spec as JSON; its tensors are gathered under names that begin with `name`."""
    return {part: json.loads(encoded(value, tensors, name + part)) for part, value in spec.items()}


def spec_of(asked: Request, query_start: Any) -> dict[str, Any]:
    """What a file can hold of a call: functions of positions are written out, functions of scores are refused."""
    for part in (asked.score, asked.normalizer):
        if not storable(part):
            raise ValueError(f"{_why_not(part)}; save its numbers instead, as in c[layer].save('weights.npz')")
    mask, bias = asked.mask, asked.bias
    try:
        if not storable(mask):
            mask = DenseMask(pair_tables.visible(asked, MOST))
        if bias is not None and not storable(bias):
            bias = DenseBias(pair_tables.added(asked, MOST))
    except ValueError as error:
        raise ValueError(f"a mask or bias made by a function cannot be in a file: {error}") from error
    spec = {"score": asked.score, "mask": mask, "bias": bias, "temperature": asked.temperature}
    return {**spec, "normalizer": asked.normalizer, "query_start": query_start}


def _why_not(part: Part) -> str:
    if getattr(part, "functions", ()):
        return f"the score {part!r} is changed by a function, which a file cannot hold"
    return f"the class of {part!r} is not registered with regard.spec.register, and a file holds no code"


def read(record: Mapping[str, Any], found: Contents) -> AttentionMatrix:
    """What `written` was given, on mapped tensors."""
    tokens, tensors = (tokens_of(record["query_tokens"]), tokens_of(record["key_tokens"])), found.tensors
    if "weights" in record:
        stored = AttentionMatrix.from_weights(named_tensor(record["weights"], tensors), *tokens)
        stored._source.before_use(found.verify)
        return stored
    spec = {name: decoded_node(node, tensors) for name, node in record["spec"].items()}
    whole = matrix(named_tensor(record["query"], tensors), named_tensor(record["key"], tensors), **spec)
    whole._source.before_use(found.verify)
    lanes = torch.tensor(record["lanes"], dtype=torch.int64, device="cpu").view(record["shape"])
    if lanes.numel() and not 0 <= int(lanes.min()) <= int(lanes.max()) < whole._source.maps:
        raise ValueError(f"it has {whole._source.maps} batch rows and heads in all, and asks for another")
    return AttentionMatrix(whole._source, lanes, *tokens, query_start=spec.get("query_start"))


def tokens_of(record: Any) -> Tokens:
    """A list of strings, or None."""
    if record is not None and not (isinstance(record, list) and all(isinstance(token, str) for token in record)):
        raise ValueError("tokens are not strings")
    return record
