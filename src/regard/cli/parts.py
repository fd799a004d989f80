"""Parts of a spec by name, as a JSON file writes them. The names are a closed table: nothing in a file is run."""

import difflib
import functools
import inspect
import json
import operator
from collections.abc import Callable, Iterable, Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin

from torch import Tensor

from regard.inspection.explanation.numbers import matrix, tensor_of
from regard.spec import biases, masks, normalizers, scores
from regard.spec.dropout import Dropout

_TABLES: dict[str, tuple[Callable[..., Any], ...]] = {
    "score": (
        scores.Dot,
        scores.ScaledDot,
        scores.General,
        scores.Cosine,
        scores.Additive,
        scores.ConcatMLP,
        scores.Relative,
        scores.SoftCapped,
    ),
    "mask": (
        masks.Full,
        masks.Causal,
        masks.Window,
        masks.Dilated,
        masks.Global,
        masks.Prefix,
        masks.Documents,
        masks.Lengths,
        masks.Blocks,
        masks.Dense,
        masks.And,
        masks.Or,
        masks.Not,
        masks.local,
        masks.longformer,
        masks.bigbird,
    ),
    "bias": (biases.ALiBi, biases.T5, biases.Distance, biases.Dense),
    "normalizer": (normalizers.Softmax, normalizers.Hard, normalizers.Sparsemax),
    "dropout": (Dropout,),
}
_BASES: dict[type, str] = {scores.Score: "score", masks.Mask: "mask"}
_JOINED_BY: dict[str, Callable[[Any, Any], Any]] = {"mask": operator.and_, "bias": operator.add}


def names(kind: str) -> list[str]:
    """What a file may name as a score, mask, bias, normalizer or dropout."""
    return [part.__name__ for part in _TABLES[kind]]


def part(kind: str, value: object) -> Any:
    """`"Causal"`, `{"name": "Window", "before": 2, "after": 0}`, or a list: masks that must all hold, biases to add.

    A mask may also be rows of true and false, a bias rows of numbers.
    """
    if isinstance(value, list) and value and kind in _JOINED_BY:
        if any(isinstance(row, list) for row in value):
            return masks.Dense(tensor_of("mask", value)) if kind == "mask" else biases.Dense(matrix("bias", value))
        return functools.reduce(_JOINED_BY[kind], [part(kind, each) for each in value])
    if isinstance(value, str):
        value = {"name": "Causal" if (kind, value) == ("mask", "causal") else value}
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError(
            f"{kind} must be a name or an object with a name, such as {_example(kind)}; got {_shown(value)}"
        )
    return _built(kind, value["name"], {name: each for name, each in value.items() if name != "name"})


def suggestion(name: str, known: Iterable[str]) -> str:
    """`did you mean …` where a known name is near, else nothing."""
    lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), lower, n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(lower[each] for each in near)}?" if near else ""


def _built(kind: str, name: str, given: dict[str, object]) -> Any:
    table = {each.__name__: each for each in _TABLES[kind]}
    if name not in table:
        hint = suggestion(name, table)
        raise ValueError(f"{kind} {name!r} is not known{hint or ';'} the names are {', '.join(table)}")
    parameters = inspect.signature(table[name]).parameters
    for each in given:
        if each not in parameters:
            takes = ", ".join(parameters) or "no arguments"
            raise ValueError(f"{name} takes {takes}; got {each!r}{suggestion(each, parameters)}")
    missing = [each for each, one in parameters.items() if one.default is one.empty and each not in given]
    if missing:
        raise ValueError(f"{name} needs {', '.join(missing)}; got {', '.join(given) or 'nothing'}")
    arguments = {
        each: _argument(f"{name}'s {each}", value, parameters[each].annotation, kind) for each, value in given.items()
    }
    return table[name](**arguments)


def _argument(label: str, value: object, annotation: Any, kind: str) -> Any:
    """The value as the type that the part declares."""
    types = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    base = next((_BASES[each] for each in types if each in _BASES), None)
    if base is not None:
        return part(base, value)
    if value is None and type(None) in types:
        return None
    if isinstance(value, list):
        if Tensor in types:
            return tensor_of(label, value) if kind == "mask" else matrix(label, value)
        if any(get_origin(each) in (list, Sequence) for each in types):
            return value
    for kinds, accepted in (((bool,), bool), ((int,), int), ((int, float), float), ((str,), str)):
        if accepted in types and isinstance(value, kinds) and isinstance(value, bool) == (accepted is bool):
            try:
                return accepted(value)
            except OverflowError:  # an integer beyond every float: the part refuses it
                return value
    wanted = " or ".join(sorted({_WORDS[each] for each in types if each in _WORDS} | _lists(types)))
    raise TypeError(f"{label} must be {wanted}, got {_shown(value)}")


_WORDS = {Tensor: "rows of numbers", int: "a whole number", float: "a number", str: "a word", bool: "true or false"}


def _lists(types: Sequence[Any]) -> set[str]:
    return {"a list" for each in types if get_origin(each) in (list, Sequence) and Tensor not in types}


def _example(kind: str) -> str:
    return {
        "score": '{"name": "Cosine", "scale": 2}',
        "mask": '{"name": "Window", "before": 2, "after": 0}',
        "bias": '{"name": "ALiBi", "heads": 1}',
        "normalizer": '{"name": "Sparsemax"}',
        "dropout": '{"name": "Dropout", "p": 0.5, "seed": 1}',
    }[kind]


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except ValueError:  # Python writes no integers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 40 else text[:40] + "…"
