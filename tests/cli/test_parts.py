"""Parts by name: the closed table builds what Python would, and says what it wanted."""

import inspect
from typing import Any

import pytest
import torch

from regard import Dropout, biases, masks, normalizers, scores
from regard.cli.parts import names, part, suggestion

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
            "score 'Additiv' is not known; did you mean Additive. the names are Dot, Sca",
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
    bases = {"Score", "Mask", "Bias", "Total"}
    public = {
        name for name in module.__all__ if inspect.isclass(getattr(module, name)) or callable(getattr(module, name))
    }
    assert set(names(kind)) == public - takes_functions - bases


def test_suggestions() -> None:
    assert suggestion("QUERY", ["query", "key"]) == "; did you mean query?"
    assert suggestion("zzz", ["query", "key"]) == ""
