"""Pictures and tables as files. A file is replaced whole or not at all."""

import io
import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.inspection.aligned import aligned as table
from regard.inspection.files import form_of, replace
from regard.inspection.records import Picture, Table
from regard.plot.data import as_csv, as_json
from regard.plot.figure import draw, fix_layout
from regard.plot.terminal import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEXT_WIDTH = 100
_DOTS_PER_INCH = 150
FIGURES = ("png", "svg", "pdf")
_FORMATS = (*FIGURES, "txt", "json", "csv")


def save(picture: Picture | Table, path: str | os.PathLike[str]) -> None:
    """Write the picture in the format its suffix names: png, svg, pdf, txt, json or csv.

    The file appears under its name when it is complete and on the disk; until then an older one stays as it was.
    The same picture gives the same bytes.
    """
    replace(path, _content(picture, form_of(path, _FORMATS)))


def save_as(picture: Picture, paths: Sequence[str | os.PathLike[str]]) -> None:
    """Write one picture as several figures (png, svg, pdf), drawn once."""
    figure = draw(picture)
    for path in paths:
        replace(path, figure_bytes(figure, form_of(path, FIGURES)))


def _content(picture: Picture | Table, form: str) -> bytes:
    if form == "json":
        return as_json(picture).encode()
    if form == "csv":
        return as_csv(picture).encode()
    if form == "txt":
        return _text(picture).encode()
    if isinstance(picture, Table):
        raise ValueError(f"a Table is saved as txt, json or csv, got {form}")
    return figure_bytes(draw(picture), form)


def _text(picture: Picture | Table) -> str:
    text = table(picture) if isinstance(picture, Table) else render(picture, width=_TEXT_WIDTH, color="shade")
    return "".join(line.rstrip() + "\n" for line in text.split("\n"))


def figure_bytes(figure: "Figure", form: str) -> bytes:
    """The figure as a png, svg or pdf, the same bytes for the same figure."""
    import matplotlib

    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}[form]
    content = io.BytesIO()
    with (
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "regard", "pdf.fonttype": 42}),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        fix_layout(figure)
        figure.savefig(content, format=form, dpi=_DOTS_PER_INCH, metadata=undated)
    _warn_once(caught, form)
    return content.getvalue()


def _warn_once(caught: list[warnings.WarningMessage], form: str) -> None:
    """Pass warnings on, those about missing glyphs as one; an svg is drawn with the fonts of its reader."""
    missing = {str(each.message) for each in caught if "missing from font" in str(each.message)}
    for each in caught:
        if str(each.message) not in missing:
            warnings.warn(each.message, each.category, stacklevel=5)
    if missing and form != "svg":
        warnings.warn(
            f"{len(missing)} characters are in no installed font that matplotlib can use and appear as boxes; "
            "install a font for them (such as Noto Sans CJK) or save as svg",
            stacklevel=5,
        )
