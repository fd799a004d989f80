"""load and save: a capture or a matrix as one safetensors file, replaced whole or not at all.

A matrix is stored as queries, keys and the spec of its weights, or as the weights where they were given.
"""

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.engine.request import Request
from regard.inspection import pair_tables
from regard.inspection.files import beside, form_of
from regard.inspection.matrix.handle import AttentionMatrix, matrix
from regard.inspection.matrix.indexing import Tokens
from regard.inspection.matrix.source import Computed, Stored, taken
from regard.inspection.tensor_file import CHECKSUMS, Contents, Gathered, mapped, write
from regard.inspection.tokens import TokenList, known_vocabulary
from regard.inspection.weights_file import SUFFIXES, WeightsFile, read_weights
from regard.spec.biases import Dense as DenseBias
from regard.spec.masks import Dense as DenseMask
from regard.spec.serialize import NotRegisteredError, decoded_node, encoded, named_tensor, storable

if TYPE_CHECKING:
    from regard.inspection.capture.result import Capture

VERSION = "1"
OTHERS = tuple(suffix for suffix in SUFFIXES if suffix != ".safetensors")  # of files that regard does not write
MOST = 1 << 28  # entries of a mask or bias that is written out because a function made it
# what a damaged file leads to; other exceptions, such as one of a signal handler, are not about the file
DAMAGE = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def save(path: str | os.PathLike[str], kind: str, record: Any, tensors: Gathered) -> None:
    """Write a file that `load` reads. What stood there before may be mapped, even by what is written."""
    form_of(path, ("safetensors",))
    texts = {"regard": kind, "version": VERSION, "content": json.dumps(record, allow_nan=False)}
    with beside(path) as part:
        write(part, texts, tensors.tensors)


def save_matrix(attention: AttentionMatrix, path: str | os.PathLike[str]) -> None:
    """Write an AttentionMatrix."""
    tensors = Gathered()
    tokens = {"query_tokens": attention.query_tokens, "key_tokens": attention.key_tokens}
    record: dict[str, Any] = {**tokens, "vocabularies": [known_vocabulary(each) for each in tokens.values()]}
    source, maps = attention._source, attention._maps
    if isinstance(source, Stored):
        record["weights"] = tensors.add("weights", taken(source.weights, maps))
    else:
        assert isinstance(source, Computed)
        request = source.request
        start = request.plane.starts if isinstance(attention._query_start, Tensor) else attention._query_start
        record["query"] = tensors.add("query", request.query.flatten(1, 2))
        record["key"] = tensors.add("key", request.key.squeeze(2))
        record["spec"] = written_spec(spec_of(request, start), "", tensors)
        record["lanes"] = maps.reshape(-1).tolist()
        record["shape"] = list(maps.shape)
    save(path, "matrix", record, tensors)


def written_spec(spec: Mapping[str, Any], name: str, tensors: Gathered) -> dict[str, Any]:
    """A spec as JSON; its tensors are gathered under names that begin with `name`."""
    return {part: json.loads(encoded(value, tensors, name + part)) for part, value in spec.items()}


def spec_of(request: Request, query_start: Any) -> dict[str, Any]:
    """What a file can hold of a call: functions of positions are written out, functions of scores are refused."""
    for part in (request.score, request.normalizer):
        if not storable(part):
            reason = f"the class of {part!r} is not registered with regard.spec.register, and a file holds no code"
            if getattr(part, "functions", ()):
                reason = f"the score {part!r} is changed by a function, which a file cannot hold"
            raise ValueError(f"{reason}; save its numbers instead, as in c[layer].save('weights.npz')")
    mask, bias = request.mask, request.bias
    try:
        if not storable(mask):
            mask = DenseMask(pair_tables.visible(request, MOST))
        if bias is not None and not storable(bias):
            bias = DenseBias(pair_tables.added(request, MOST))
    except ValueError as error:
        raise ValueError(f"a mask or bias made by a function cannot be in a file: {error}") from error
    spec = {"score": request.score, "mask": mask, "bias": bias, "temperature": request.temperature}
    return {**spec, "normalizer": request.normalizer, "query_start": query_start}


def load(path: str | os.PathLike[str], *, array: str | None = None) -> "Capture | AttentionMatrix":
    """What `c.save("run.safetensors")` or `A.save("head.safetensors")` wrote, or weights of another program: an array
    (…, query, key) in a file of type npy, npz, csv, safetensors, pt or pth, `array` by name if there are several.

    A file that regard wrote is mapped: it opens at once whatever its size, and is read where a weight is asked for. The
    first time that something is asked of a layer, its tensors are compared with their checksums. Files hold no code.
    """
    opened = open_file(path, array)
    if isinstance(opened, WeightsFile):
        for note in opened.notes:
            warnings.warn(note, stacklevel=2)
        return opened.matrix
    return opened


def open_file(path: str | os.PathLike[str], array: str | None = None) -> "Capture | AttentionMatrix | WeightsFile":
    """The same; weights of another program with what is to be said about them."""
    from regard.inspection.capture.file import read

    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; load takes a file that c.save(...) wrote")
    if path.suffix.lower() in OTHERS:
        return read_weights(path, array)
    contents = mapped(path)
    if "regard" not in contents.texts:
        return read_weights(path, array)
    if array is not None:
        raise ValueError(
            f"{path} is a saved capture or matrix, which has no arrays to choose from; leave {array!r} out"
        )
    kind, record = _content(path, contents.texts)
    try:
        return read(record, contents) if kind == "capture" else _read_matrix(record, contents)
    except NotRegisteredError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    except DAMAGE as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{path} is damaged ({text}); save it again") from error


def _content(path: Path, texts: dict[str, str]) -> tuple[str, Any]:
    """What a file says that it holds."""
    kind, version = texts.get("regard"), texts.get("version")
    if kind not in ("capture", "matrix"):
        raise ValueError(f"{path} is not a saved capture or matrix; write one with c.save(...)")
    if version != VERSION:
        raise ValueError(
            f"{path} is written in version {version!r} of its format and this regard reads version {VERSION!r}; "
            "read it with the regard that wrote it"
        )
    if odd := set(texts) - {"regard", "version", "content", CHECKSUMS}:
        raise ValueError(f"{path} is damaged (it has a text {min(odd)!r}, which no version knows); save it again")
    try:
        return kind, json.loads(texts.get("content", ""))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged (its description is no JSON); save it again") from error


def _read_matrix(record: Mapping[str, Any], contents: Contents) -> AttentionMatrix:
    """What `save_matrix` wrote, on mapped tensors."""
    kinds = record.get("vocabularies", [None, None])  # older files have none
    tokens = [_tokens(record[name], kind) for name, kind in zip(("query_tokens", "key_tokens"), kinds, strict=True)]
    tensors = contents.tensors
    if "weights" in record:
        stored = AttentionMatrix.from_weights(named_tensor(record["weights"], tensors), *tokens)
        stored._source.before_use(contents.verify)
        return stored
    spec = {name: decoded_node(node, tensors) for name, node in record["spec"].items()}
    whole = matrix(named_tensor(record["query"], tensors), named_tensor(record["key"], tensors), **spec)
    whole._source.before_use(contents.verify)
    maps = torch.tensor(record["lanes"], dtype=torch.int64, device="cpu").view(record["shape"])
    if maps.numel() and not 0 <= int(maps.min()) <= int(maps.max()) < whole._source.maps:
        raise ValueError(f"it has {whole._source.maps} batch rows and heads in all, and asks for another")
    return AttentionMatrix(whole._source, maps, *tokens, query_start=spec.get("query_start"))


def _tokens(record: Any, kind: str | None) -> Tokens:
    """A list of strings of a kind of vocabulary, if that is known, or None."""
    if record is not None and not (isinstance(record, list) and all(isinstance(token, str) for token in record)):
        raise ValueError("tokens are not strings")
    return record if record is None else TokenList(record, kind)
