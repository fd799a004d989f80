"""A capture in pictures: all heads of all layers as small maps, their statistics, and a page to browse them."""

import os
from typing import TYPE_CHECKING, Protocol

from regard.inspection.files import form_of, replace
from regard.inspection.records import Table
from regard.plot.capture_page import capture_page
from regard.plot.capture_page import notebook as notebook
from regard.plot.capture_window import print_capture as print_capture
from regard.plot.figure import need_matplotlib
from regard.plot.overview import SCALES, Layers, overview
from regard.plot.profiles import maps, profiles
from regard.plot.save import FIGURES, figure_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("overview", "profiles", "statistics")
FORMATS = (*FIGURES, "html")


class Captured(Layers, Protocol):
    """A capture whose heads have a table."""

    def heads(self) -> Table:
        """A row for each head: layer, head, and its statistics."""


def save_capture(
    capture: Captured,
    path: str | os.PathLike[str],
    *,
    kind: str = "overview",
    how: str = "max",
    title: str = "",
    scale: str = "shared",
    batch: int = 0,
    table: Table | None = None,
) -> None:
    """Write a picture in the format the suffix names: png, svg, pdf, or html, a page to browse layers and heads.

    `kind`: "overview", a small map for each head; "profiles", entropy and distance along the layers; "statistics", maps
    of layer × head. `scale`: colors that are "shared" by all maps, or "own" to each. `batch`: the row of the batch that
    maps show. `table`: what `capture.heads()` gave, if it was computed before.
    """
    form = form_of(path, FORMATS)
    _check(kind, scale)
    if form == "html":
        if kind != "overview":
            raise ValueError(f"kind={kind!r} is a figure, saved as {', '.join(FIGURES)}; got {os.fspath(path)!r}")
        content = capture_page(capture, how=how, title=title, batch=batch).encode()
    else:
        figure = figure_of(capture, kind=kind, how=how, title=title, scale=scale, batch=batch, table=table)
        content = figure_bytes(figure, form)
    replace(path, content)


def figure_of(
    capture: Captured,
    *,
    kind: str = "overview",
    how: str = "max",
    title: str = "",
    scale: str = "shared",
    batch: int = 0,
    table: Table | None = None,
) -> "Figure":
    """The matplotlib figure of one of the kinds."""
    _check(kind, scale)
    need_matplotlib()
    if kind == "overview":
        from regard.plot.mosaic import draw_overview

        return draw_overview(overview(capture, how=how, title=title, batch=batch), scale)
    from regard.plot.profile_artists import draw_maps, draw_profiles

    found = capture.heads() if table is None else table
    return draw_profiles(profiles(found), title) if kind == "profiles" else draw_maps(maps(found, title))


def _check(kind: str, scale: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"kind is one of {', '.join(KINDS)}; got {kind!r}")
    if scale not in SCALES:
        raise ValueError(f"scale is one of {', '.join(SCALES)}; got {scale!r}")
