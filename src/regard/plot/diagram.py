"""Diagrams of boxes and arrows, and images: as figures; in a terminal one line for each arrow, and brightness."""

from typing import TYPE_CHECKING

import numpy as np

from regard.inspection.records import Box, Diagram, Grid, Image
from regard.inspection.text import visible, wrap
from regard.plot.figure import LETTER, diagram_size, image_layout
from regard.plot.heatmap import heatmap
from regard.plot.terminal import Line, paragraph
from regard.plot.theme import MARK, Depth, hex_color, series_color

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

_GRAY = "#8a9097"
_INK = "#30363c"


def diagram_lines(diagram: Diagram, width: int, depth: Depth) -> list[Line]:
    """Boxes without an arrow, then each arrow with the boxes at its ends, from top to bottom."""
    check_diagram(diagram)
    joined = {end for arrow in diagram.arrows for end in (arrow.start, arrow.stop)}
    texts = [_line(box) for number, box in enumerate(diagram.boxes) if number not in joined and box.text]
    for arrow in diagram.arrows:
        start, stop = (_line(diagram.boxes[end]) for end in (arrow.start, arrow.stop))
        texts.append(f"{start} → {f'({arrow.text}) ' if arrow.text else ''}{stop}")
    return [line for text in (diagram.title, *texts, diagram.note) for line in paragraph(text, width, depth)]


def _line(box: Box) -> str:
    return " ".join(box.text.split("\n"))


def check_diagram(diagram: Diagram) -> None:
    """Raise unless every arrow has a box at both ends."""
    for arrow in diagram.arrows:
        if not all(0 <= end < len(diagram.boxes) for end in (arrow.start, arrow.stop)):
            raise ValueError(
                f"an arrow goes from a box to a box; there are {len(diagram.boxes)}, and an arrow goes from "
                f"{arrow.start} to {arrow.stop}"
            )


def draw_diagram(figure: "Figure | SubFigure", diagram: Diagram) -> None:
    """Rounded boxes with their texts, and arrows from border to border."""
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    check_diagram(diagram)
    axes = figure.subplots()
    width, _ = diagram_size(diagram)
    height = max((box.y + box.height / 2 for box in diagram.boxes), default=1.0) + 0.1
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    axes.set_axis_off()
    if diagram.title:
        axes.set_title(visible(diagram.title))
    patches = []
    for box in diagram.boxes:
        color = _GRAY if box.series is None else hex_color(series_color(box.series))
        patch = FancyBboxPatch(
            (box.x - box.width / 2, box.y - box.height / 2),
            box.width,
            box.height,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=f"{color}2b",
            edgecolor=color,
            linewidth=1.1,
            visible=box.border,
        )
        patches.append(axes.add_patch(patch))
        text = "\n".join(visible(line) for line in box.text.split("\n"))
        axes.text(box.x, box.y, text, ha="center", va="center", fontsize=9, color=_INK)
    for arrow in diagram.arrows:
        start, stop = diagram.boxes[arrow.start], diagram.boxes[arrow.stop]
        axes.add_patch(
            FancyArrowPatch(
                (start.x, start.y),
                (stop.x, stop.y),
                arrowstyle="-|>",
                mutation_scale=10,
                connectionstyle=f"arc3,rad={arrow.bend}",
                patchA=patches[arrow.start],
                patchB=patches[arrow.stop],
                shrinkA=2,
                shrinkB=2,
                color=_INK,
                linewidth=1.0,
            )
        )
        if arrow.text:
            # an arc leaves the straight line by half its bend, to the side on which the text stands
            aside = arrow.bend / 2
            x = (start.x + stop.x) / 2 + aside * (stop.y - start.y)
            y = (start.y + stop.y) / 2 - aside * (stop.x - start.x)
            paper = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
            axes.text(x, y, visible(arrow.text), ha="center", va="center", fontsize=8, color=_INK, bbox=paper)
    axes.text(
        0.5,
        -0.01,
        "\n".join(wrap(visible(diagram.note), int(width / LETTER))),
        ha="center",
        va="top",
        fontsize="small",
        transform=axes.transAxes,
    )


def check_image(image: Image) -> None:
    """Raise unless rows are equally long and every pixel is red, green and blue."""
    widths = {len(row) for row in image.pixels}
    if len(widths) != 1 or any(len(pixel) != 3 for row in image.pixels for pixel in row):
        raise ValueError("an Image has rows of one length, and pixels of red, green and blue from 0 to 1")


def image_lines(image: Image, width: int, depth: Depth) -> list[Line]:
    """The brightest channel of every pixel, as a heatmap."""
    check_image(image)
    values = [[min(max(*pixel, 0.0), 1.0) for pixel in row] for row in image.pixels]
    return heatmap(Grid(values, title=image.title, note=image.note, limits=(0.0, 1.0)), width, depth)


def draw_image(figure: "Figure | SubFigure", image: Image) -> None:
    """The pixels, with the labels of the cells beside them and a frame around marked cells."""
    from matplotlib.patches import Rectangle

    check_image(image)
    pixels = np.clip(np.asarray(image.pixels, dtype=np.float64), 0.0, 1.0)
    axes = figure.subplots()
    axes.imshow(pixels, interpolation="nearest")
    axes.set_title("\n".join(image_layout(image).title))
    height, width = pixels.shape[:2]
    rows, columns = max(len(image.row_labels), 1), max(len(image.column_labels), 1)
    cell = height / rows, width / columns
    axes.set_yticks(
        [cell[0] * (place + 0.5) - 0.5 for place in range(len(image.row_labels))], map(visible, image.row_labels)
    )
    axes.set_xticks(
        [cell[1] * (place + 0.5) - 0.5 for place in range(len(image.column_labels))],
        map(visible, image.column_labels),
    )
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for row, column in image.marks:
        corner = column * cell[1] - 0.5, row * cell[0] - 0.5
        axes.add_patch(Rectangle(corner, cell[1], cell[0], fill=False, edgecolor=hex_color(MARK), linewidth=2.0))
    axes.set_xlabel("\n".join(image_layout(image).note), fontsize="small")
