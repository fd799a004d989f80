"""Pictures and tables as files: figures, text, JSON (every field) and CSV (what a spreadsheet can hold).

A file is replaced as a whole or not at all.
"""

import csv
import dataclasses
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from regard.inspection.files import form_of, replace
from regard.inspection.number import nonfinite
from regard.inspection.records import Estimate, Grid, Picture, Table
from regard.inspection.table import checked_rows
from regard.inspection.table import text_table as table
from regard.plot import grids
from regard.plot.figure import FIGURES, figure_bytes
from regard.plot.render import draw, render

_TEXT_WIDTH = 100


def save(picture: Picture | Table, path: str | os.PathLike[str]) -> Path:
    """Write the picture in the format its suffix names: png, svg, pdf, txt, json or csv.

    The file appears under its name when it is complete and on the disk; until then an older one stays as it was.
    The same picture gives the same bytes. Returns the path.
    """
    replace(path, _content(picture, form_of(path, (*FIGURES, "txt", "json", "csv"))))
    return Path(path)


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
        text = table(picture) if isinstance(picture, Table) else render(picture, width=_TEXT_WIDTH, color="shade")
        return "".join(line.rstrip() + "\n" for line in text.split("\n")).encode()
    if isinstance(picture, Table):
        raise ValueError(f"a Table is saved as txt, json or csv, got {form}")
    return figure_bytes(draw(picture), form)


def as_json(record: Picture | Table) -> str:
    """The record with its kind and every field. Hidden pairs are null; `nan`, `inf` and `-inf` are strings."""
    return json.dumps(_plain(record), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"kind": type(value).__name__, **fields}
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if hasattr(value, "__iter__"):
        return [_plain(entry) for entry in value]
    number = float(value)  # type: ignore[arg-type]  # any real number, numpy's included
    return number if math.isfinite(number) else nonfinite(number)


def as_csv(record: Picture | Table) -> str:
    """Rows with labels for a Grid, hidden pairs empty; an Estimate takes three columns of a Table."""
    if isinstance(record, Grid):
        lines = _grid_lines(record)
    elif isinstance(record, Table):
        lines = _table_lines(record)
    else:
        raise ValueError(f"csv holds a Grid or a Table, got {type(record).__name__}; save it as json")
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _grid_lines(grid: Grid) -> Iterator[list[object]]:
    values = grids.cells(grid)
    height, width = grids.shape(values)
    yield ["", *(grid.column_labels if len(grid.column_labels) else range(width))]
    for label, row in zip(grid.row_labels if len(grid.row_labels) else range(height), values, strict=True):
        yield [label, *("" if value is None else float(value) for value in row)]


def _table_lines(table: Table) -> Iterator[list[object]]:
    rows = checked_rows(table)
    estimated = [any(isinstance(row[index], Estimate) for row in rows) for index in range(len(table.columns))]
    yield [
        name
        for column, wide in zip(table.columns, estimated, strict=True)
        for name in ([column, f"{column} low", f"{column} high"] if wide else [column])
    ]
    for row in rows:
        line: list[object] = []
        for cell, wide in zip(row, estimated, strict=True):
            if isinstance(cell, Estimate):
                line += [cell.mean, cell.low, cell.high]
            else:
                line += [cell, "", ""] if wide else [cell]
        yield line
