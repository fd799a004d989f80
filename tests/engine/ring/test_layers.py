"""Layers of regard.nn and reductions of a matrix on shards equal those of the whole."""

from typing import Any

import pytest

Workers = Any


@pytest.mark.parametrize(
    "position, layout",
    [
        ("rotary", "contiguous"),
        ("rotary", "zigzag"),
        ("t5", "contiguous"),
        ("sinusoidal", "zigzag"),
        ("learned", "zigzag"),
    ],
)
def test_a_language_model(workers: Workers, position: str, layout: str) -> None:
    assert workers.values("layers", position=position, layout=layout) == [[]] * 8


@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
def test_a_matrix(workers: Workers, layout: str) -> None:
    assert workers.values("reductions", layout=layout) == [[]] * 8
