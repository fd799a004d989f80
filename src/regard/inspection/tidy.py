"""Tidy: a table of findings, one row for each thing found, that prints, sorts and goes to other programs."""

import csv
import io
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, Self

from regard.checks import whole
from regard.inspection.aligned import aligned
from regard.inspection.files import form_of
from regard.inspection.files import replace as write
from regard.inspection.number import short
from regard.inspection.records import Cell, Estimate, Table

if TYPE_CHECKING:
    from pandas import DataFrame

HALF = 20  # rows printed of each end of a long table


@dataclass(frozen=True, repr=False)
class Tidy(Table):
    """A Table that answers questions: `t["entropy"]` is a column, `t.sort("entropy")` puts the largest first,
    `t.where(layer=3)` keeps rows, `for row in t` gives dictionaries.

    `decimals` are printed of every float; files and programs get them all.
    """

    decimals: int | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Cell]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def __getitem__(self, column: str) -> list[Cell]:
        place = self._place(column)
        return [row[place] for row in self.rows]

    def sort(self, by: str, *, ascending: bool = False) -> Self:
        """The rows in the order of a column, the largest first; equal ones stay as they were, NaN comes last."""
        place = self._place(by)
        missing = [row for row in self.rows if _missing(row[place])]
        there = [row for row in self.rows if not _missing(row[place])]
        there.sort(key=lambda row: _size(row[place]), reverse=not ascending)
        return replace(self, rows=(*there, *missing))

    def where(self, **wanted: Cell) -> Self:
        """The rows that have these cells."""
        places = {self._place(column): cell for column, cell in wanted.items()}
        return replace(self, rows=[row for row in self.rows if all(row[at] == cell for at, cell in places.items())])

    def head(self, count: int) -> Self:
        """The first rows."""
        whole("count", count, 0)
        return replace(self, rows=self.rows[:count])

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """The table as CSV: text, or a file where a path is given. An Estimate takes three columns."""
        text = io.StringIO()
        flat = [_flat(row) for row in self]
        writer = csv.DictWriter(text, list(flat[0]) if flat else list(self.columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        return self._given(text.getvalue(), path)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """The table as a JSON array of one object for each row; numbers that are not finite are null."""
        flat = [{name: None if _missing(cell) else cell for name, cell in _flat(row).items()} for row in self]
        return self._given(json.dumps(flat, ensure_ascii=False, indent=1, allow_nan=False) + "\n", path)

    def to_pandas(self) -> "DataFrame":
        """The table as a pandas DataFrame; an Estimate takes three columns."""
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas; or use to_csv or to_json") from error
        return DataFrame([_flat(row) for row in self], columns=None if self.rows else list(self.columns))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table in the format that the suffix names: csv, json or txt."""
        form = form_of(path, ("csv", "json", "txt"))
        if form == "csv":
            self.to_csv(path)
        elif form == "json":
            self.to_json(path)
        else:
            write(path, f"{self.text()}\n".encode())

    def __repr__(self) -> str:
        if len(self) <= 2 * HALF + 1:
            return self.text()
        lines = replace(self, rows=(*self.rows[:HALF], *self.rows[-HALF:])).text().splitlines()
        return "\n".join([*lines[:-HALF], f"… {len(self) - 2 * HALF:,} more rows …", *lines[-HALF:]])

    def text(self) -> str:
        """All rows in aligned columns."""
        return aligned(replace(self, rows=[list(map(self._shown, row)) for row in self.rows]))

    def _repr_html_(self) -> str:
        def text(cell: Cell) -> str:
            if isinstance(cell, Estimate):
                return f"{short(cell.mean)} [{short(cell.low)}, {short(cell.high)}]"
            return escape(short(self._rounded(cell)) if isinstance(cell, float) else str(cell))

        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        rows = "".join("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>" for row in self.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def _rounded(self, number: float) -> float:
        return number if self.decimals is None else round(number, self.decimals)

    def _shown(self, cell: Cell) -> Cell:
        return self._rounded(cell) if isinstance(cell, float) else cell

    def without(self, *columns: str) -> Self:
        """The table less these columns."""
        gone = {self._place(column) for column in columns}
        rows = [[cell for place, cell in enumerate(row) if place not in gone] for row in self.rows]
        return replace(self, columns=[name for place, name in enumerate(self.columns) if place not in gone], rows=rows)

    def _place(self, column: str) -> int:
        if column not in self.columns:
            raise KeyError(f"no column {column!r}; there are {', '.join(self.columns)}")
        return list(self.columns).index(column)

    def _given(self, text: str, path: str | os.PathLike[str] | None) -> str | None:
        if path is None:
            return text
        write(path, text.encode())
        return None


def _missing(cell: Cell) -> bool:
    return isinstance(cell, float) and not math.isfinite(cell)


def _size(cell: Cell) -> Any:
    return cell.mean if isinstance(cell, Estimate) else cell


def _flat(row: dict[str, Cell]) -> dict[str, str | int | float]:
    flat: dict[str, str | int | float] = {}
    for name, cell in row.items():
        if isinstance(cell, Estimate):
            flat |= {name: cell.mean, f"{name} low": cell.low, f"{name} high": cell.high}
        else:
            flat[name] = cell
    return flat
