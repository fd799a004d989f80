"""`regard explain`: every step of a small attention with its numbers: a sentence, a head of a model, or a spec file.

A spec file is one attention written as JSON by hand. Parts are written by the names under which they are registered
(`regard.spec.serialize`): nothing in a file is run.
"""

import argparse
import dataclasses
import difflib
import functools
import hashlib
import inspect
import json
import operator
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from torch import Tensor

from regard.inspection.explain import Explanation, explain, project
from regard.inspection.explain.numbers import matrix, tensor_of
from regard.inspection.files import replace
from regard.inspection.text import json_shown
from regard.spec import biases, masks, scores
from regard.spec.serialize import registered

# Three words of width 2 and identity projections: small enough to check by hand.
EXAMPLE = {
    "tokens": ["Word 1", "Word 2", "Word 3"],
    "x": [[1, 0], [0, 1], [1, 1]],
    "w_query": [[1, 0], [0, 1]],
    "w_key": [[1, 0], [0, 1]],
    "w_value": [[1, 0], [0, 1]],
}

# What a word of a sentence is multiplied with. Its vector is made from its letters: the same word, the same numbers.
WIDTH, MOST_WORDS = 3, 32
MATRICES = {
    "w_query": [[1, 0], [0, 1], [1, 1]],
    "w_key": [[1, 0], [0, 1], [0, 1]],
    "w_value": [[1, 0], [1, 1], [0, 1]],
}
MADE_UP = (
    "The vectors of the words are made up from their letters, so that the same word has the same numbers; they mean "
    "nothing. In a model they are learned: --model minilm --layer 2 --head 9."
)
ENDINGS = {".md": "markdown", ".tex": "latex", ".html": "html", ".htm": "html", ".json": "json"}

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
_FAMILIES = {"score": "scores", "mask": "masks", "bias": "biases", "normalizer": "normalizers", "dropout": "dropout"}
_RECIPES: dict[str, tuple[Callable[..., Any], ...]] = {"mask": (masks.local, masks.longformer, masks.bigbird)}
_BASES: dict[type, str] = {scores.Score: "score", masks.Mask: "mask", biases.Bias: "bias"}
_EXAMPLES = {
    "score": '{"name": "Cosine", "scale": 2}',
    "mask": '{"name": "Window", "before": 2, "after": 0}',
    "bias": '{"name": "ALiBi", "heads": 1}',
    "normalizer": '{"name": "Sparsemax"}',
    "dropout": '{"name": "Dropout", "p": 0.5, "seed": 1}',
}
_WORDS = {Tensor: "rows of numbers", int: "a whole number", float: "a number", str: "a word", bool: "true or false"}
_JOINED_BY: dict[str, Callable[[Any, Any], Any]] = {"mask": operator.and_, "bias": operator.add}


def read(path: Path) -> dict[str, Any]:
    """The arguments of `explain` that the file describes."""
    return arguments(_loaded(path))


def words_of(sentence: str) -> list[str]:
    """The words of a sentence, without the punctuation around them."""
    words = [word for word in (each.strip(".,;:!?\"'()[]…„“”«»") for each in sentence.split()) if word]
    if not 1 <= len(words) <= MOST_WORDS:
        raise ValueError(f"a sentence has 1 to {MOST_WORDS} words, got {len(words)}; name a sentence or a JSON file")
    return words


def made_up(word: str) -> list[int]:
    """A vector of −1, 0 and 1, by a hash of the word in lower case; never all zeros."""
    digest = hashlib.sha256(word.casefold().encode()).digest()
    vector = [byte % 3 - 1 for byte in digest[:WIDTH]]
    return vector if any(vector) else [1] * WIDTH


def sentence_document(sentence: str) -> dict[str, Any]:
    """A sentence as the JSON object of a spec file."""
    words = words_of(sentence)
    return {"tokens": words, "x": [made_up(word) for word in words], **MATRICES}


def arguments(document: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `explain` from the JSON object of a file."""
    for name in document:
        if name not in _KEYS:
            raise ValueError(
                f"the file has a key {name!r} that explain does not know{suggestion(name, _KEYS) or ';'} "
                f"the keys are {', '.join(_KEYS)}"
            )
    given: dict[str, Any] = _inputs(document)
    given |= {kind: part(kind, document[kind]) for kind in _PARTS if document.get(kind) is not None}
    if "temperature" in document:
        value = document["temperature"]
        given["temperature"] = matrix("temperature", value) if isinstance(value, list) else value
    if (value := document.get("dropout")) is not None:
        given["dropout"] = part("dropout", {"name": "Dropout", **value}) if isinstance(value, dict) else value
    if (value := document.get("query_start")) is not None:
        given["query_start"] = tensor_of("query_start", value) if isinstance(value, list) else value
    return given | _tokens(document)


def _loaded(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"{path} has {path.stat().st_size} bytes; explain is for small inputs, up to {LARGEST}")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(
            f"cannot read {path}: {error.strerror}; name a JSON file, or try `regard explain --example`"
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8; explain reads JSON") from None
    return _parsed(text, str(path))


def _parsed(text: str, path: str) -> dict[str, Any]:
    """The JSON object in a text that was read from `path`."""
    if len(text) > LARGEST:
        raise ValueError(f"{path} has more than {LARGEST} characters; explain is for small inputs")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except ValueError as error:
        if "integer string conversion" not in str(error):
            raise
        raise ValueError(f"{path} holds a number of thousands of digits, which no spec takes") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply; rows of numbers are [[1, 0], [0, 1]]") from None
    if not isinstance(document, dict):
        raise ValueError(f'{path} must hold a JSON object such as {{"query": …, "key": …, "value": …}}')
    return document


def _inputs(document: dict[str, Any]) -> dict[str, Any]:
    embedded = "x" in document or not any(name in document for name in _DIRECT)
    needed, other = (_EMBEDDED, _DIRECT) if embedded else (_DIRECT, (*_EMBEDDED, "memory"))
    missing = [name for name in needed if name not in document]
    if missing:
        raise ValueError(
            f"the file needs x, w_query, w_key and w_value, or query, key and value; {', '.join(missing)} is missing, "
            f"got {', '.join(document) or 'no key at all'}"
        )
    extra = [name for name in other if name in document]
    if extra:
        raise ValueError(
            f"the file has {', '.join(needed)} and also {', '.join(extra)}; give embeddings with matrices, or queries, "
            "keys and values, not both"
        )
    if embedded:
        x, w_query, w_key, w_value = (document[name] for name in _EMBEDDED)
        return {"query": project(x, w_query, w_key, w_value, memory=document.get("memory"))}
    return {name: document[name] for name in _DIRECT}


def _tokens(document: dict[str, Any]) -> dict[str, Any]:
    """`tokens` names the queries, and the keys too unless they come from a memory."""
    given = {name: document[name] for name in ("query_tokens", "key_tokens") if document.get(name) is not None}
    if document.get("tokens") is not None:
        given.setdefault("query_tokens", document["tokens"])
        if "memory" not in document:
            given.setdefault("key_tokens", document["tokens"])
    for name, tokens in given.items():
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise TypeError(f'{name} must be a list of words such as ["the", "cat"], got {type(tokens).__name__}')
    return given


def names(kind: str) -> list[str]:
    """What a file may name as a score, mask, bias, normalizer or dropout."""
    return list(_table(kind))


def _table(kind: str) -> dict[str, Callable[..., Any]]:
    return {**registered(_FAMILIES[kind]), **{recipe.__name__: recipe for recipe in _RECIPES.get(kind, ())}}


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
        example = _EXAMPLES[kind]
        raise ValueError(f"{kind} must be a name or an object with a name, such as {example}; got {_text(value)}")
    return _built(kind, value["name"], {name: each for name, each in value.items() if name != "name"})


def suggestion(name: str, known: Iterable[str]) -> str:
    """`did you mean …` where a known name is near, else nothing."""
    lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), lower, n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(lower[each] for each in near)}?" if near else ""


def _built(kind: str, name: str, given: dict[str, object]) -> Any:
    table = _table(kind)
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
    if isinstance(value, list) and get_origin(annotation) is tuple:
        return tuple(part(_BASES[get_args(annotation)[0]], each) for each in value)
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
    accepts_list = Tensor not in types and any(get_origin(each) in (list, Sequence) for each in types)
    words = {_WORDS[each] for each in types if each in _WORDS} | ({"a list"} if accepts_list else set())
    raise TypeError(f"{label} must be {' or '.join(sorted(words))}, got {_text(value)}")


def _text(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except ValueError:  # Python writes no integers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 40 else text[:40] + "…"


def explained(args: argparse.Namespace) -> Explanation:
    """The explanation of what is named: the example, a sentence, a head of a model, or an attention as JSON."""
    options = {"row": args.row, "digits": args.digits}
    if args.example:
        return explain(**arguments(EXAMPLE), head=args.head, batch=args.batch, **options)
    given = args.input
    piped = sys.stdin.read(LARGEST + 1) if given == "-" else ""
    sentence = piped.strip() if given == "-" else given
    if args.model is not None:
        return _of_model(args, sentence)
    if given == "-" and sentence.startswith(("{", "[")):
        return explain(**arguments(_parsed(sentence, "standard input")), head=args.head, batch=args.batch, **options)
    if given != "-" and (given.lower().endswith(".json") or _is_file(given)):
        return explain(**read(Path(given)), head=args.head, batch=args.batch, **options)
    made = explain(**arguments(sentence_document(sentence)), head=args.head, batch=args.batch, **options)
    return dataclasses.replace(made, notes=(MADE_UP, *made.notes))


def _of_model(args: argparse.Namespace, sentence: str) -> Explanation:
    """The head of the model that reads the sentence."""
    from regard.cli.text import captured

    words_of(sentence)
    source = argparse.Namespace(text=sentence, file=None, sample=None, model=args.model)
    found = captured(source)
    try:
        return found.explain(args.layer, args.head, row=args.row, batch=args.batch, digits=args.digits)
    except IndexError as error:  # of a layer or head
        raise ValueError(str(error)) from None


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:  # too long for a name
        return False


def run(args: argparse.Namespace) -> int:
    """Print or write the explanation."""
    explanation = explained(args)
    form = args.format or ENDINGS.get(args.out.suffix.lower() if args.out is not None else "", "text")
    if form == "json":
        text = json_shown(json.dumps(explanation.to_dict(), ensure_ascii=False, indent=1, allow_nan=False)) + "\n"
    elif form == "html":
        text = explanation.html()
    elif form == "markdown":
        text = explanation.markdown()
    elif form == "latex":
        text = explanation.latex()
    else:  # as wide as the terminal, up to a line that can still be read; a file gets 100 columns
        to_terminal = args.out is None and sys.stdout.isatty()
        text = explanation.text(min(shutil.get_terminal_size().columns, 120) if to_terminal else 100)
    if args.out is None:
        sys.stdout.write(text)
        return 0
    if not args.out.parent.is_dir():
        raise ValueError(f"cannot write {args.out}: there is no folder {args.out.parent}; create it first")
    if args.out.is_dir():
        raise ValueError(f"cannot write {args.out}: it is a folder; name a file in it")
    replace(args.out, text.encode())
    return 0
