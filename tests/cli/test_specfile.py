"""Spec files: JSON to the arguments of explain, and one clear line for every mistake."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from regard import Dropout, biases, masks, normalizers, scores
from regard.cli import main
from regard.cli.explain import LARGEST, arguments, names, part, read, suggestion
from regard.inspection.explain import Projected

ONE = [[1, 0]]
DIRECT = {"query": ONE, "key": ONE, "value": ONE}
SQUARE = [[1, 0], [0, 1]]
EMBEDDED = {"x": ONE, "w_query": SQUARE, "w_key": SQUARE, "w_value": SQUARE}


def test_everything_is_passed_on() -> None:
    found = arguments(
        {
            **DIRECT,
            "tokens": ["a"],
            "mask": "Causal",
            "temperature": [0.5],
            "dropout": {"p": 0.5, "seed": 3},
            "query_start": 2,
        }
    )
    assert found.pop("temperature").tolist() == [0.5]
    assert found == {
        **DIRECT,
        "mask": masks.Causal(),
        "dropout": Dropout(0.5, 3),
        "query_start": 2,
        "query_tokens": ["a"],
        "key_tokens": ["a"],
    }


def test_embeddings_are_projected() -> None:
    found = arguments({**EMBEDDED, "query_start": [1]})
    assert isinstance(found["query"], Projected)
    assert torch.equal(found["query"].key, torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    assert found["query_start"].tolist() == [1]


def test_tokens_do_not_name_the_memory() -> None:
    found = arguments({**EMBEDDED, "memory": ONE, "tokens": ["a"]})
    assert "key_tokens" not in found
    assert arguments({**EMBEDDED, "memory": ONE, "tokens": ["a"], "key_tokens": ["b"]})["key_tokens"] == ["b"]


@pytest.mark.parametrize(
    "found, error, message",
    [
        ({"querry": ONE}, ValueError, "key 'querry' that explain does not know; did you mean query or w_query"),
        ({}, ValueError, "needs x, w_query, w_key and w_value, or query, key and value; x, .* got no key at all"),
        ({"query": ONE, "key": ONE}, ValueError, "value is missing, got query, key"),
        ({"x": ONE, "w_query": SQUARE, "w_key": SQUARE}, ValueError, "w_value is missing"),
        ({**EMBEDDED, **DIRECT}, ValueError, "and also query, key, value; give embeddings with matrices, or"),
        ({**DIRECT, "memory": ONE}, ValueError, "and also memory"),
        (
            {**DIRECT, "tokens": "abc"},
            TypeError,
            r'query_tokens must be a list of words such as \["the", "cat"\], got str',
        ),
        ({**DIRECT, "tokens": [1]}, TypeError, "query_tokens must be a list of words"),
        ({**DIRECT, "score": "Dott"}, ValueError, "score 'Dott' is not known; did you mean Dot"),
    ],
)
def test_contents_that_are_refused(found: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        arguments(found)


def test_files_that_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"

    def refused(message: str) -> None:
        with pytest.raises(ValueError, match=message):
            read(file)

    refused("cannot read .*spec.json: No such file or directory; name a JSON file, or try `regard explain --example`")
    file.write_text('{"query": [[1, 0]\n', encoding="utf-8")
    refused("spec.json is not JSON: Expecting ',' delimiter at line 2, column 1")
    file.write_text("[1]", encoding="utf-8")
    refused("must hold a JSON object such as")
    file.write_bytes(b"\xff\xfe")
    refused("is not text in UTF-8")
    file.write_text("[" * 100_000, encoding="utf-8")
    refused("is nested too deeply")
    file.write_text(" " * (LARGEST + 1), encoding="utf-8")
    refused("explain is for small inputs, up to 1000000")
    file.unlink()
    file.mkdir()
    refused("cannot read .*: Is a directory")


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(DIRECT), encoding="utf-8")
    assert read(file) == DIRECT


@pytest.mark.parametrize(
    "part, text",
    [
        ('"normalizer": {"name": "Softmax", "sink": 1' + "0" * 400 + "}", "Softmax's sink must be finite, got 2**1328"),
        ('"score": {"name": "ScaledDot", "scale": 1' + "0" * 400 + "}", "ScaledDot's scale must be finite"),
        ('"mask": {"name": "Prefix", "p": 1180591620717411303424}', "Prefix must be at most 2**63 - 1, got 11805916"),
        ('"mask": {"name": "Window", "before": 1180591620717411303424, "after": 0}', "must lie within ±2**61"),
        ('"mask": {"name": "Global", "positions": [1180591620717411303424]}', "one of them is too large"),
        ('"mask": {"name": "Window", "before": 1' + "0" * 5000 + ', "after": 0}', "a number of thousands of digits"),
        ('"query_start": 1180591620717411303424', "query_start must lie within ±2**62"),
        ('"temperature": 1' + "0" * 400, "temperature must be at most 1.8e+308"),
        ('"dropout": {"p": 0.5, "seed": 36893488147419103232}', "Dropout's seed must be at most 2**64 - 1"),
    ],
)
def test_numbers_that_are_too_large(part: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spec.json"
    path.write_text('{"query": [[1, 0]], "key": [[1, 0]], "value": [[1]], ' + part + "}")
    assert main(["explain", str(path)]) == 1
    assert text in capsys.readouterr().err


W = [[1.0, 2.0], [3.0, 4.0]]
TENSOR = torch.tensor(W, dtype=torch.float64)
PAIR = torch.tensor([1.0, 2.0], dtype=torch.float64)


@pytest.mark.parametrize(
    "kind, written, value",
    [
        ("score", "Dot", scores.Dot()),
        ("score", {"name": "ScaledDot", "scale": 2}, scores.ScaledDot(2.0)),
        ("score", {"name": "General", "weight": W}, scores.General(TENSOR)),
        ("score", {"name": "Additive", "w_query": W, "w_key": W, "v": [1, 2]}, scores.Additive(TENSOR, TENSOR, PAIR)),
        (
            "score",
            {"name": "ConcatMLP", "w_query": W, "w_key": W, "b": None, "v": [1, 2], "activation": "relu"},
            scores.ConcatMLP(TENSOR, TENSOR, None, PAIR, "relu"),
        ),
        (
            "score",
            {"name": "SoftCapped", "score": {"name": "Cosine", "scale": 3}, "cap": 2.5},
            scores.SoftCapped(scores.Cosine(3.0), 2.5),
        ),
        ("mask", "Causal", masks.Causal()),
        ("mask", "causal", masks.Causal()),
        ("mask", {"name": "Window", "before": 2, "after": None}, masks.Window(2, None)),
        ("mask", {"name": "Lengths", "lengths": [2, 3]}, masks.Lengths(torch.tensor([2, 3]))),
        ("mask", {"name": "longformer", "width": 3, "positions": [0]}, masks.longformer(3, [0])),
        ("mask", ["Causal", {"name": "Prefix", "p": 2}], masks.Causal() & masks.Prefix(2)),
        (
            "mask",
            {"name": "Or", "left": "Causal", "right": {"name": "Prefix", "p": 2}},
            masks.Causal() | masks.Prefix(2),
        ),
        ("mask", {"name": "Not", "mask": "Causal"}, ~masks.Causal()),
        ("mask", [[True, False]], masks.Dense(torch.tensor([[True, False]]))),
        ("bias", {"name": "ALiBi", "heads": 2}, biases.ALiBi(2)),
        ("bias", [{"name": "ALiBi", "heads": 2}, {"name": "ALiBi", "heads": 2}], biases.ALiBi(2) + biases.ALiBi(2)),
        ("bias", [[1, 2], [3, 4]], biases.Dense(TENSOR)),
        ("bias", {"name": "Total", "parts": [{"name": "ALiBi", "heads": 2}]}, biases.Total((biases.ALiBi(2),))),
        (
            "bias",
            {"name": "T5", "table": [[0]] * 4, "bidirectional": False},
            biases.T5(torch.zeros(4, 1).double(), False),
        ),
        ("normalizer", {"name": "Softmax", "sink": 0.5}, normalizers.Softmax(0.5)),
        ("normalizer", {"name": "Softmax", "sink": [1, 2]}, normalizers.Softmax(PAIR)),
        ("dropout", {"name": "Dropout", "p": 0.5, "seed": 3}, Dropout(0.5, 3)),
    ],
    ids=str,
)
def test_a_part_is_built(kind: str, written: object, value: object) -> None:
    assert part(kind, written) == value


@pytest.mark.parametrize(
    "kind, written, error, message",
    [
        (
            "score",
            "Additiv",
            ValueError,
            "score 'Additiv' is not known; did you mean Additive. the names are Dot, Scaled",
        ),
        ("score", "zzz", ValueError, "score 'zzz' is not known; the names are Dot"),
        ("score", "Modified", ValueError, "score 'Modified' is not known"),
        ("mask", "__import__", ValueError, "mask '__import__' is not known"),
        ("mask", "from_flex", ValueError, "mask 'from_flex' is not known"),
        ("score", 3, ValueError, r'score must be a name or an object with a name, such as \{"name": "Cosine".*; got 3'),
        ("score", {"weight": W}, ValueError, "score must be a name or an object with a name"),
        ("mask", [], ValueError, "mask must be a name or an object with a name"),
        ("score", {"name": "Dot", "scale": 1}, ValueError, "Dot takes no arguments; got 'scale'"),
        ("score", {"name": "Cosine", "scael": 1}, ValueError, "Cosine takes scale; got 'scael'; did you mean scale?"),
        ("score", {"name": "Additive", "v": [1]}, ValueError, "Additive needs w_query, w_key; got v"),
        ("score", {"name": "General", "weight": 1}, TypeError, "General's weight must be rows of numbers, got 1"),
        (
            "score",
            {"name": "General", "weight": [[1], [1, 2]]},
            ValueError,
            "General's weight must have rows of one length",
        ),
        ("score", {"name": "Cosine", "scale": "1"}, TypeError, 'Cosine\'s scale must be a number, got "1"'),
        ("score", {"name": "Cosine", "scale": True}, TypeError, "Cosine's scale must be a number, got true"),
        (
            "mask",
            {"name": "Window", "before": 0.5, "after": 0},
            TypeError,
            "Window's before must be a whole number, got 0.5",
        ),
        ("bias", {"name": "ALiBi", "heads": 0}, ValueError, "ALiBi's heads must be at least 1, got 0"),
        ("dropout", {"name": "Dropout", "p": 0.5}, ValueError, "Dropout needs seed; got p"),
    ],
)
def test_what_is_refused(kind: str, written: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        part(kind, written)


@pytest.mark.parametrize("kind, module", [("score", scores), ("mask", masks), ("bias", biases)])
def test_every_part_is_in_the_table_but_those_that_take_functions(kind: str, module: Any) -> None:
    takes_functions = {"Modified", "Where", "RowWhere", "from_flex", "from_mha", "from_padding", "from_sdpa"}
    bases = {"Score", "Mask", "Bias"}
    public = {
        name for name in module.__all__ if inspect.isclass(getattr(module, name)) or callable(getattr(module, name))
    }
    assert set(names(kind)) == public - takes_functions - bases


def test_suggestions() -> None:
    assert suggestion("QUERY", ["query", "key"]) == "; did you mean query?"
    assert suggestion("zzz", ["query", "key"]) == ""
