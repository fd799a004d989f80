"""Diagrams: every box and arrow is drawn and written, and an arrow into nothing is refused."""

import pytest
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.text import Text

from regard import plot
from regard.inspection.records import Arrow, Box, Diagram

FLOW = Diagram(
    [Box("tokens\n4 × 8", 0.7, 0.5), Box("queries", 2.5, 0.5, series=0), Box("2014", 2.5, 1.2, border=False)],
    [Arrow(0, 1, "W_Q", bend=0.3)],
    "Shapes",
    "of one layer",
)


def test_a_figure_has_every_box_arrow_and_text() -> None:
    (axes,) = plot.draw(FLOW).axes
    boxes = [patch for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    assert [box.get_visible() for box in boxes] == [True, True, False]
    assert boxes[0].get_edgecolor() != boxes[1].get_edgecolor()
    assert sum(isinstance(patch, FancyArrowPatch) for patch in axes.patches) == 1
    texts = {text.get_text() for text in axes.findobj(Text)}
    assert {"tokens\n4 × 8", "queries", "2014", "W_Q", "Shapes", "of one layer"} <= texts


def test_a_terminal_lists_the_arrows() -> None:
    lines = [line.rstrip() for line in plot.render(FLOW, width=60, color="shade").split("\n")]
    assert lines == ["Shapes", "2014", "tokens 4 × 8 → (W_Q) queries", "of one layer"]


def test_an_arrow_needs_a_box_at_both_ends() -> None:
    with pytest.raises(ValueError, match="there are 1, and an arrow goes from 0 to 1"):
        plot.draw(Diagram([Box("a", 0, 0)], [Arrow(0, 1)]))
