"""Figures: what the artists hold, not what the pixels look like."""

import io
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

import regard
from regard.inspection.records import Bars, Grid, Line, Lines, Panel, Table
from regard.plot import draw
from regard.plot.figure import fix_layout, rows_of
from regard.plot.theme import ramp

EVIL = "$\\frac{\x1b[31m"
GRID = Grid([[0.5, None, 0.25], [0.1, 0.2, 0.7]], ["a", EVIL], ["x", "y", "_z"], title=EVIL, note="note")
BANDS = Line("dot", [1, 10, 100], [1.0, 2.0, 3.0], [0.5, 1.5, 2.5], [1.5, 2.5, 3.5])


def axes_of(figure: Figure) -> Axes:
    return figure.axes[0]


def texts_of(figure: Figure) -> list[Text]:
    found: list[Any] = figure.findobj(Text)
    return found


def labels(texts: list[Text]) -> list[str]:
    return [text.get_text() for text in texts]


def test_heatmap_holds_the_weights_the_labels_and_the_numbers() -> None:
    axes = axes_of(draw(GRID))
    data: Any = axes.images[0].get_array()
    assert np.ma.getmaskarray(data).tolist() == [[False, True, False], [False, False, False]]
    assert data.compressed().tolist() == [0.5, 0.25, 0.1, 0.2, 0.7]
    assert labels(axes.get_yticklabels()) == ["a", r"$\frac{\x1b[31m"]
    assert labels(axes.get_xticklabels()) == ["x", "y", "_z"]
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (0, 0): "0.50",
        (2, 0): "0.25",
        (0, 1): "0.10",
        (1, 1): "0.20",
        (2, 1): "0.70",
    }
    assert axes.get_ylim()[0] > axes.get_ylim()[1], "row 0 is at the top"


def test_cells_have_the_colors_of_the_terminal() -> None:
    image = axes_of(draw(Grid([[0.0, 0.35, 0.7]]))).images[0]
    shown = image.to_rgba(np.array([0.0, 0.35, 0.7]))[:, :3]
    expected = [[part / 255 for part in ramp(fraction)] for fraction in (0.0, 0.5, 1.0)]
    assert np.abs(shown - expected).max() <= 1 / 128  # matplotlib has 256 steps


def test_hidden_pairs_show_hatched_paper() -> None:
    patch = axes_of(draw(GRID)).patch
    assert patch.get_hatch()
    assert to_rgb(patch.get_facecolor())[0] > 0.9


def test_a_pattern_has_neither_numbers_nor_scale() -> None:
    axes = axes_of(draw(Grid([[1.0, None], [1.0, 1.0]], note="3 of 4")))
    assert not axes.texts
    assert not axes.child_axes
    assert axes.get_xlabel() == "3 of 4\nhatched: hidden"
    assert len(axes_of(draw(GRID)).child_axes) == 1


@pytest.mark.parametrize("side", [2, 12, 40])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 9])
def test_panels_are_not_wider_than_a_page(side: int, count: int) -> None:
    tokens = [f"token {index}" for index in range(side)]
    for picture in (Grid([[1.0] * side] * side), Grid([[0.5] * side] * side, tokens, tokens), Lines([BANDS], "n", "y")):
        panel = Panel([picture] * count)
        rows = rows_of(panel)
        assert sum(map(len, rows)) == count
        assert max(map(len, rows)) - len(rows[-1]) < len(rows)
        assert max(map(len, rows)) <= 4
        assert draw(panel).get_size_inches()[0] <= 14


def test_long_titles_are_broken() -> None:
    title = axes_of(draw(Grid([[0.5] * 3] * 3, title="one of the words " * 9))).get_title()
    assert len(title.split("\n")) > 2


def test_what_is_not_finite_is_written() -> None:
    axes = axes_of(draw(Grid([[math.nan, math.inf, -math.inf, 0.5]] * 101)))
    assert labels(list(axes.texts)) == ["nan", "inf", "-inf"] * 101
    assert axes.images[0].get_clim() == (0.0, 0.5)


def test_long_axes_are_labeled_now_and_then() -> None:
    names = [f"t{index}" for index in range(200)]
    axes = axes_of(draw(Grid([[0.1] * 200] * 200, names, names)))
    assert labels(axes.get_xticklabels()) == names[::3]
    assert axes.get_yticks().tolist() == list(range(0, 200, 3))
    assert not axes.texts


def test_lines_hold_their_points_and_bands() -> None:
    axes = axes_of(draw(Lines([BANDS, Line("_gap", [1, 10], [math.nan, 1.0])], "n", "nats", log_x=True)))
    first, second = axes.lines
    assert np.asarray(first.get_xydata()).tolist() == [[1, 1], [10, 2], [100, 3]]
    assert np.isnan(np.asarray(second.get_ydata())[0])
    (band,) = (artist for artist in axes.collections if isinstance(artist, PolyCollection))
    corners = {tuple(corner) for corner in np.asarray(band.get_paths()[0].vertices).tolist()}
    assert {(1, 0.5), (10, 1.5), (100, 2.5), (1, 1.5), (10, 2.5), (100, 3.5)} <= corners
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    assert labels(axes.get_xticklabels()) == ["1", "10", "100"]
    legend = axes.get_legend()
    assert legend is not None
    assert labels(list(legend.get_texts())) == ["dot", "_gap"]


def test_bars_of_a_group_stand_beside_each_other() -> None:
    axes = axes_of(draw(Bars(["a", "b"], {"one": [1.0, -2.0], "two": [3.0, math.nan]}, "ms")))
    bars = [(bar.get_x(), bar.get_height()) for container in axes.containers for bar in container]
    assert [height for _, height in bars] == [1.0, -2.0, 3.0, 0.0]
    assert [round(x, 6) for x, _ in bars] == [-0.4, 0.6, 0.0, 1.0]
    assert "nan" in labels(list(axes.texts))
    assert labels(axes.get_xticklabels()) == ["a", "b"]


def test_panels_draw_every_picture_once() -> None:
    panel = Panel([GRID, Lines([BANDS], "n", "y", title="lines"), Panel([GRID] * 5, title="inner")], title="outer")
    figure = draw(panel)
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles.count(r"$\frac{\x1b[31m") == 6
    assert titles.count("lines") == 1
    assert {"outer", "inner"} <= {text.get_text() for text in texts_of(figure)}
    figure.draw_without_rendering()


@pytest.mark.parametrize(
    "picture",
    [
        GRID,
        Grid([]),
        Grid([[]]),
        Grid([[None]]),
        Grid([[0.5] * 90] * 2),
        Lines([], "x", "y"),
        Lines([Line("", [], [])], "x", "y", log_x=True, log_y=True),
        Lines([Line(EVIL, [-1, 0], [0, -1], [-2, -2], [0, 0])], EVIL, EVIL, log_x=True, log_y=True),
        Bars([], {}, "y"),
        Bars(["a long label"] * 9, {EVIL: [math.inf] * 9}, EVIL),
        Panel([]),
    ],
)
def test_anything_can_be_drawn_without_warning_or_formula(picture: Any) -> None:
    figure = draw(picture)
    figure.draw_without_rendering()
    texts = [text for text in texts_of(figure) if "$" in text.get_text()]
    assert not any(text.get_parse_math() for text in texts)


def test_a_panel_that_is_saved_keeps_every_label_inside() -> None:
    """The layout takes several steps: after the first, the left label of this one lay below the edge."""
    steps, losses = [20.0 * step for step in range(1, 11)], [6.4, 6.1, 5.9, 5.8, 5.6, 4.9, 2.6, 1.2, 0.9, 0.87]
    scores = [0.03, 0.04, 0.04, 0.05, 0.09, 0.22, 0.63, 0.85, 0.88, 0.89]
    left = Lines([Line("a", steps, losses), Line("b", steps, [7.0] * 10)], "step", "loss (nats)", "Loss")
    right = Lines([Line("a", steps, scores)], "step", "weight", "Best head of either kind")
    figure = draw(Panel((left, right), "During training"))
    fix_layout(figure)
    figure.draw_without_rendering()
    for axes in figure.axes:
        box = axes.xaxis.label.get_window_extent()
        assert box.y0 >= 0
        assert box.y1 <= axes.get_window_extent().y0


def test_a_table_is_refused() -> None:
    table: Any = Table(["a"], [])
    with pytest.raises(TypeError, match="draw takes a Grid, Lines, Bars, Diagram, Image or Panel, got Table"):
        draw(table)


def test_matplotlib_is_loaded_only_to_draw_and_its_absence_explained() -> None:
    program = """
import sys
import regard.plot
from regard.inspection.records import Grid
assert not any(name.partition(".")[0] == "matplotlib" for name in sys.modules)
regard.plot.render(Grid([[1.0]]), color="shade")
sys.modules["matplotlib"] = None
try:
    regard.plot.draw(Grid([[1.0]]))
except ImportError as error:
    print(error)
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "drawing figures needs matplotlib: pip install regard[pictures]\n"


def test_pyplot_is_never_loaded() -> None:
    program = """
import sys
from regard.inspection.records import Grid
from regard.plot import draw
draw(Grid([[1.0]])).draw_without_rendering()
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def _encoder_capture() -> regard.Capture:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 16, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    return regard.capture(encoder, torch.randn(1, 6, 16))


FIGURES_OF: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "head": lambda: (regard.matrix(*torch.randn(2, 1, 2, 6, 8), mask="causal")[0, 1], {}),
    "heads": lambda: (regard.matrix(*torch.randn(2, 1, 2, 6, 8)), {"how": "mean", "title": "two heads"}),
    "lines": lambda: (regard.matrix(*torch.randn(2, 1, 1, 6, 8)), {"kind": "lines"}),
    "alignment": lambda: (regard.matrix(*torch.randn(2, 1, 1, 6, 8)), {"kind": "alignment"}),
    "capture": lambda: (_encoder_capture(), {}),
    "profiles": lambda: (_encoder_capture(), {"kind": "profiles"}),
    "statistics": lambda: (_encoder_capture(), {"kind": "statistics"}),
}


@pytest.mark.parametrize("name", FIGURES_OF)
def test_a_figure_drawn_by_others_is_the_picture_of_the_file(name: str, tmp_path: Path) -> None:
    shown, options = FIGURES_OF[name]()
    figure = shown.figure(**options)
    assert type(figure) is Figure
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")  # as loggers do, with no option
    path = shown.save(str(tmp_path / "saved.png"), **options)
    assert path == tmp_path / "saved.png"
    saved, found = (plt.imread(source) for source in (path, io.BytesIO(drawn.getvalue())))
    np.testing.assert_array_equal(found, saved)
    assert plt.get_fignums() == []  # nothing that pyplot would show or hold


def test_a_figure_of_a_mask() -> None:
    figure = regard.masks.Causal().figure(8)
    assert figure.axes[0].get_title() == "Causal()"
    assert len(regard.masks.Causal().figure().axes[0].get_yticklabels()) == 16


def test_a_figure_refuses_what_a_file_refuses() -> None:
    with pytest.raises(ValueError, match="kind is one of heatmap, lines, alignment; got 'bars'"):
        regard.matrix(*torch.randn(2, 1, 1, 6, 8)).figure(kind="bars")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="kind is one of overview, profiles, statistics; got 'map'"):
        _encoder_capture().figure(kind="map")
