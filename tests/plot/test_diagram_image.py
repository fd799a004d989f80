"""Images: pixels keep their colors, labels name cells, marked cells have a frame, and terminals show brightness."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from regard import plot
from regard.inspection.records import Image, Panel
from regard.plot.describe import describe
from regard.plot.render import draw

RED, BLACK, BLUE = (1.0, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 1.0)
IMAGE = Image([[RED, BLACK], [BLACK, BLUE]], "ab", "12", "two colors", "on black", [(1, 0)])


def test_pixels_keep_their_colors() -> None:
    axes = draw(IMAGE).axes[0]
    assert np.asarray(axes.images[0].get_array()).tolist() == [[list(pixel) for pixel in row] for row in IMAGE.pixels]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2"]
    assert axes.get_title() == "two colors"
    (frame,) = (patch for patch in axes.patches if isinstance(patch, Rectangle))
    assert (frame.get_x(), frame.get_y(), frame.get_width(), frame.get_height()) == (-0.5, 0.5, 1.0, 1.0)


def test_values_outside_are_clipped() -> None:
    axes = draw(Image([[(2.0, -1.0, 0.5)]])).axes[0]
    assert np.asarray(axes.images[0].get_array()).tolist() == [[[1.0, 0.0, 0.5]]]


def test_a_terminal_shows_the_brightness() -> None:
    text = plot.render(IMAGE, width=60, color="shade")
    assert "two colors" in text
    assert "█" in text


def test_a_panel_has_room_for_images() -> None:
    width = draw(Panel((IMAGE, IMAGE))).get_size_inches()[0]
    assert width > 1.8 * draw(IMAGE).get_size_inches()[0]


def test_words_for_it() -> None:
    assert describe(IMAGE) == "Image, two colors: 2 × 2 pixels; framed: “b”, “1”; on black."


@pytest.mark.parametrize("pixels", [[[RED], [RED, RED]], [[(1.0, 0.0)]], []])
def test_no_image(pixels: list[list[tuple[float, ...]]]) -> None:
    with pytest.raises(ValueError, match="pixels of red, green and blue"):
        draw(Image(pixels))
