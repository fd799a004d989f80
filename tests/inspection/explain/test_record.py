"""Explanation: a frozen record that survives JSON and opens as a picture."""

import dataclasses
import json
import math
from typing import Any

import pytest
import torch

from regard import biases, plot
from regard.inspection.explain import Explanation, explain


def example() -> Explanation:
    hidden = biases.Dense(torch.tensor([[0.0, -math.inf]], dtype=torch.float64))
    return explain([[1.0, 2.0]], [[0.5, 1.0], [1.0, 0.0]], [[1.0], [2.0]], bias=hidden, query_tokens=['"<é\n'])


def test_json_round_trip() -> None:
    plain = example().to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    tables: list[Any] = [table for step in plain["steps"] for table in step["tables"]]  # type: ignore[attr-defined]
    assert [table["values"] for table in tables if table["name"] == "B"] == [[[0.0, "-inf"]]]
    assert plain["weights"] == {"name": "A", "rows": ['"<é\n'], "columns": ["k0", "k1"], "values": [[1.0, None]]}
    assert plain["row"] == '"<é\n'


def test_every_worked_line_is_there_in_text_and_latex() -> None:
    steps: Any = example().to_dict()["steps"]
    output = steps[-1]
    assert output["formula"] == {"text": "O = A·V", "latex": "O = A V"}
    assert output["worked"] == [{"label": '"<é\n, column 1 of 1', "text": "1·1 = 1", "latex": r"1 \cdot 1 = 1"}]


def test_it_is_frozen_and_compares_by_content() -> None:
    assert example() == example()
    with pytest.raises(dataclasses.FrozenInstanceError):
        example().digits = 3  # type: ignore[misc]


def test_printing() -> None:
    assert str(example()) == example().text()
    assert repr(example()) == "Explanation('Attention step by step: 1 query, 2 keys', 9 steps; print it to read them)"
    assert example()._repr_markdown_() == example().markdown()


def test_a_matrix_is_a_picture_too() -> None:
    assert "k1" in plot.render(example().weights.grid, width=60)
