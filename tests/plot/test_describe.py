"""The words of a picture say what its numbers show."""

import pytest

from regard.inspection.records import Arrow, Bars, Box, Diagram, Grid, Line, Lines, Panel, Picture
from regard.plot.describe import describe


@pytest.mark.parametrize(
    "picture, words",
    [
        (
            Lines([Line("a", [1, 2, 3], [0.5, 2, 1]), Line("", [1, 2], [4, 3])], "d", "keys", "Keys in use"),
            "Line chart, Keys in use: keys against d. a: 0.5 at 1, highest 2 at 2, 1 at 3. 4 at 1, 3 at 2.",
        ),
        (
            Lines([Line("wide", [-1, 0, 1], [0.2, 0.5, 0.3])], "score", "density", histogram=True),
            "Histograms: density against score. wide: highest at 0, above half of that from 0 to 1.",
        ),
        (
            Bars(["cat", "mat"], {"τ = 1": [0.7, 0.3], "τ = 2": [0.6, 0.4]}, "weight", "Weights"),
            "Bar chart, Weights: weight. τ = 1: cat 0.7, mat 0.3. τ = 2: cat 0.6, mat 0.4.",
        ),
        (
            Bars([str(n) for n in range(20)], {"": [float(n) for n in range(20)]}, "weight"),
            "Bar chart: weight. highest 19 with 19, lowest 0 with 0.",
        ),
        (
            Grid([[0.1, 0.9], [None, 0.5]], ("the", "cat"), ("a", "b"), "A map", margins=((1.0, 0.5), (0.1, 1.4))),
            "Heat map, A map: 2 rows, 2 columns, 1 cells empty; largest 0.9 at “the”, “b”; smallest 0.1 at “the”, "
            "“a”; bars at the rows from 0.5 to 1; bars at the columns from 0.1 to 1.4.",
        ),
        (Grid([[1.0, None]]), "Heat map: 1 rows, 2 columns, 1 cells empty; all 1."),
        (
            Diagram([Box("x\n4 × 8", 0, 0), Box("q", 1, 0), Box("alone", 2, 0)], [Arrow(0, 1, "W_Q")], "Shapes"),
            "Diagram, Shapes: alone; x 4 × 8 → (W_Q) q.",
        ),
        (
            Panel((Bars(["p"], {"": [1.0]}, "y"), Bars(["p"], {"": [2.0]}, "y")), "Two"),
            "Two. 1. Bar chart: y. p 1. 2. Bar chart: y. p 2.",
        ),
    ],
)
def test_words(picture: Picture, words: str) -> None:
    assert describe(picture) == words
