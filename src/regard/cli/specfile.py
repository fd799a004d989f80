"""Spec files: one attention written as JSON, read into the arguments of `explain`."""

import json
from pathlib import Path
from typing import Any

from regard.cli.parts import part, suggestion
from regard.inspection.explain import project
from regard.inspection.explanation.numbers import matrix, tensor_of

LARGEST = 1_000_000  # bytes; what can be explained is far smaller

_EMBEDDED = ("x", "w_query", "w_key", "w_value")
_DIRECT = ("query", "key", "value")
_PARTS = ("score", "mask", "bias", "normalizer")
_KEYS = (
    *_EMBEDDED,
    "memory",
    *_DIRECT,
    "tokens",
    "query_tokens",
    "key_tokens",
    *_PARTS,
    "temperature",
    "dropout",
    "query_start",
)


def read(path: Path) -> dict[str, Any]:
    """The arguments of `explain` that the file describes."""
    return arguments(_loaded(path))


def arguments(found: dict[str, Any]) -> dict[str, Any]:
    """The same from what the file holds."""
    for name in found:
        if name not in _KEYS:
            raise ValueError(
                f"the file has a key {name!r} that explain does not know{suggestion(name, _KEYS) or ';'} "
                f"the keys are {', '.join(_KEYS)}"
            )
    given: dict[str, Any] = _inputs(found)
    given |= {kind: part(kind, found[kind]) for kind in _PARTS if found.get(kind) is not None}
    if "temperature" in found:
        given["temperature"] = _temperature(found["temperature"])
    if found.get("dropout") is not None:
        given["dropout"] = _dropout(found["dropout"])
    if found.get("query_start") is not None:
        start = found["query_start"]
        given["query_start"] = tensor_of("query_start", start) if isinstance(start, list) else start
    return given | _tokens(found)


def _loaded(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"{path} has {path.stat().st_size} bytes; explain is for small inputs, up to {LARGEST}")
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"cannot read {path}: {error.strerror}; name a JSON file, or try `regard explain --example`"
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8; explain reads JSON") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except ValueError as error:
        if "integer string conversion" not in str(error):
            raise
        raise ValueError(f"{path} holds a number of thousands of digits, which no spec takes") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply; rows of numbers are [[1, 0], [0, 1]]") from None
    if not isinstance(found, dict):
        raise ValueError(f'{path} must hold a JSON object such as {{"query": …, "key": …, "value": …}}')
    return found


def _inputs(found: dict[str, Any]) -> dict[str, Any]:
    embedded = "x" in found or not any(name in found for name in _DIRECT)
    wanted, other = (_EMBEDDED, _DIRECT) if embedded else (_DIRECT, (*_EMBEDDED, "memory"))
    missing = [name for name in wanted if name not in found]
    if missing:
        raise ValueError(
            f"the file needs x, w_query, w_key and w_value, or query, key and value; {', '.join(missing)} is missing, "
            f"got {', '.join(found) or 'no key at all'}"
        )
    extra = [name for name in other if name in found]
    if extra:
        raise ValueError(
            f"the file has {', '.join(wanted)} and also {', '.join(extra)}; give embeddings with matrices, or queries, "
            "keys and values, not both"
        )
    if embedded:
        x, w_query, w_key, w_value = (found[name] for name in _EMBEDDED)
        return {"query": project(x, w_query, w_key, w_value, memory=found.get("memory"))}
    return {name: found[name] for name in _DIRECT}


def _temperature(value: object) -> Any:
    if isinstance(value, list):
        return matrix("temperature", value)
    return value


def _dropout(value: object) -> Any:
    if isinstance(value, dict):
        return part("dropout", {"name": "Dropout", **value})
    return value


def _tokens(found: dict[str, Any]) -> dict[str, Any]:
    """`tokens` names the queries, and the keys too unless they come from a memory."""
    given = {name: found[name] for name in ("query_tokens", "key_tokens") if found.get(name) is not None}
    if found.get("tokens") is not None:
        given.setdefault("query_tokens", found["tokens"])
        if "memory" not in found:
            given.setdefault("key_tokens", found["tokens"])
    for name, tokens in given.items():
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise TypeError(f'{name} must be a list of words such as ["the", "cat"], got {type(tokens).__name__}')
    return given
