"""Table: rows and named columns that print as text, sort, filter, and convert to CSV, JSON, pandas and Arrow."""

import csv
import io
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from regard.checks import whole
from regard.inspection import files
from regard.inspection.number import alike, interval, short
from regard.inspection.text import display_width, left, right, visible

if TYPE_CHECKING:
    from pandas import DataFrame

HALF = 20  # rows printed of each end of a long table
GAP = "  "  # between columns


@dataclass(frozen=True)
class Estimate:
    """A mean over repetitions with its 95 % interval.

    Of a few runs no interval can be made: `runs` then holds each of them, `low` and `high` the lowest and the highest.
    """

    mean: float
    low: float
    high: float
    runs: tuple[float, ...] = ()


Cell = str | int | float | Estimate


@dataclass(frozen=True, repr=False)
class Table:
    """Columns with a name each, rows of cells: `t["entropy"]` is a column, `t.sort("entropy")` puts the largest first,
    `t.where(layer=3)` selects rows, `for row in t` gives dictionaries.

    `decimals` are printed of every float; files and programs get all digits.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    decimals: int | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Cell]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def __getitem__(self, column: str) -> list[Cell]:
        index = self._index(column)
        return [row[index] for row in self.rows]

    def sort(self, by: str, *, ascending: bool = False) -> Self:
        """The rows in the order of a column, the largest first; equal rows keep their order, NaN comes last."""
        index = self._index(by)
        missing = [row for row in self.rows if _not_finite(row[index])]
        others = [row for row in self.rows if not _not_finite(row[index])]
        others.sort(key=lambda row: _sort_key(row[index]), reverse=not ascending)
        return replace(self, rows=(*others, *missing))

    def where(self, **cells: Cell) -> Self:
        """The rows that have these cells."""
        by_index = {self._index(column): cell for column, cell in cells.items()}
        return replace(self, rows=[row for row in self.rows if all(row[at] == cell for at, cell in by_index.items())])

    def head(self, count: int) -> Self:
        """The first rows."""
        whole("count", count, 0)
        return replace(self, rows=self.rows[:count])

    def without(self, *columns: str) -> Self:
        """The table without these columns."""
        gone = {self._index(column) for column in columns}
        rows = [[cell for index, cell in enumerate(row) if index not in gone] for row in self.rows]
        return replace(self, columns=[name for index, name in enumerate(self.columns) if index not in gone], rows=rows)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """The table as CSV: text, or a file if a path is given. An Estimate takes three columns."""
        text = io.StringIO()
        flat = [_flat(row) for row in self]
        writer = csv.DictWriter(text, list(flat[0]) if flat else list(self.columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        return _written(text.getvalue(), path)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """The table as a JSON array with an object for each row; numbers that are not finite are null."""
        flat = [{name: None if _not_finite(cell) else cell for name, cell in _flat(row).items()} for row in self]
        return _written(json.dumps(flat, ensure_ascii=False, indent=1, allow_nan=False) + "\n", path)

    def to_pandas(self) -> "DataFrame":
        """The table as a pandas DataFrame; an Estimate takes three columns."""
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas; or use to_csv or to_json") from error
        return DataFrame([_flat(row) for row in self], columns=None if self.rows else list(self.columns))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table as an Arrow stream, for `pyarrow.table(t)`, `polars.DataFrame(t)` and others; an Estimate takes
        three columns. It needs pyarrow or polars."""
        columns = self._typed_columns()
        try:
            from pyarrow import table
        except ImportError:
            try:
                from polars import DataFrame
            except ImportError as error:
                raise ImportError(
                    "Arrow needs pyarrow: pip install pyarrow; or use to_pandas, to_csv or to_json"
                ) from error
            return DataFrame(columns).__arrow_c_stream__(requested_schema)
        return table(columns).__arrow_c_stream__(requested_schema)

    def _typed_columns(self) -> dict[str, list[Any]]:
        """Columns whose cells have one type: numbers of which some are floats are floats, other mixtures are text."""
        rows = [_flat(row) for row in self]
        names = list(dict.fromkeys(name for row in rows for name in row)) if rows else list(self.columns)
        columns = {}
        for name in names:
            cells: list[Any] = [row.get(name) for row in rows]
            kinds = {type(cell) for cell in cells} - {type(None)}
            convert = float if kinds == {int, float} else str if len(kinds) > 1 else None
            columns[name] = cells if convert is None else [None if cell is None else convert(cell) for cell in cells]
        return columns

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the table in the format that the suffix names: csv, json or txt. Returns the path."""
        form = files.form_of(path, ("csv", "json", "txt"))
        if form == "csv":
            self.to_csv(path)
        elif form == "json":
            self.to_json(path)
        else:
            files.replace(path, f"{self.text()}\n".encode())
        return Path(path)

    def __repr__(self) -> str:
        if len(self) <= 2 * HALF + 1:
            return self.text()
        lines = replace(self, rows=(*self.rows[:HALF], *self.rows[-HALF:])).text().splitlines()
        return "\n".join([*lines[:-HALF], f"… {len(self) - 2 * HALF:,} more rows …", *lines[-HALF:]])

    def text(self, width: int | None = None, keys: Sequence[str] = ()) -> str:
        """All rows in aligned columns; columns that `width` has no room for go on below, behind those of `keys`."""
        rows = [[self._rounded(cell) if isinstance(cell, float) else cell for cell in row] for row in self.rows]
        return text_table(replace(self, rows=rows), width, keys)

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

    def _index(self, column: str) -> int:
        if column not in self.columns:
            raise KeyError(f"no column {column!r}; there are {', '.join(self.columns)}")
        return list(self.columns).index(column)


def text_table(table: Table, width: int | None = None, keys: Sequence[str] = ()) -> str:
    """The table in aligned columns under its title; floats of a column share their decimals if their sizes allow it.

    With a `width`, columns that do not fit go on below, behind the columns `keys`, which tell the rows.
    """
    lines = [" ".join(visible(line) for line in table.title.splitlines())] if table.title else []
    columns = columns_of(table)
    repeated = [column for name, column in zip(table.columns, columns, strict=True) if name in keys]
    for number, group in enumerate(_groups(columns, repeated, width)):
        lines += [""] * (number > 0)
        lines += [GAP.join(texts).rstrip() for texts in zip(*(column.lines() for column in group), strict=True)]
    return "\n".join(lines)


def _groups(columns: Sequence["Column"], repeated: Sequence["Column"], width: int | None) -> list[list["Column"]]:
    """The columns in groups that fit the width, each behind the repeated ones; one column at least in each."""
    if width is None:
        return [list(columns)]
    groups: list[list[Column]] = []
    start = sum(column.width + len(GAP) for column in repeated)
    room = 0
    for column in columns:
        if column in repeated:
            continue
        if not groups or column.width > room:
            groups.append(list(repeated))
            room = width - start
        groups[-1].append(column)
        room -= column.width + len(GAP)
    return groups or [list(columns)]


@dataclass(frozen=True)
class Column:
    """A column as texts; `words` are aligned left, numbers right."""

    name: str
    texts: Sequence[str]
    words: bool

    @property
    def width(self) -> int:
        """Columns of the terminal that it takes."""
        return max(map(display_width, [self.name, *self.texts]))

    def lines(self) -> list[str]:
        """Name, rule and cells, equally wide."""
        place, width = left if self.words else right, self.width
        return [place(text, width) for text in (self.name, "-" * width, *self.texts)]


def columns_of(table: Table) -> list[Column]:
    """The columns as texts."""
    rows, columns = checked_rows(table), []
    for index, name in enumerate(table.columns):
        cells = [row[index] for row in rows]
        numbers = iter(alike([cell for cell in cells if isinstance(cell, float)]))
        texts = [next(numbers) if isinstance(cell, float) else _text(cell) for cell in cells]
        columns.append(Column(visible(name), texts, words=all(isinstance(cell, str | bool) for cell in cells)))
    return columns


def checked_rows(table: Table) -> Sequence[Sequence[Cell]]:
    """The rows; refused unless each has a cell for every column."""
    for row in table.rows:
        if len(row) != len(table.columns):
            raise ValueError(f"a Table has one cell per column, got {len(row)} cells for {len(table.columns)} columns")
    return table.rows


def _text(cell: Cell) -> str:
    if isinstance(cell, Estimate):
        return interval(cell)
    return visible(cell) if isinstance(cell, str) else str(cell)


def _written(text: str, path: str | os.PathLike[str] | None) -> str | None:
    if path is None:
        return text
    files.replace(path, text.encode())
    return None


def _not_finite(cell: Cell) -> bool:
    return isinstance(cell, float) and not math.isfinite(cell)


def _sort_key(cell: Cell) -> Any:
    return cell.mean if isinstance(cell, Estimate) else cell


def _flat(row: dict[str, Cell]) -> dict[str, str | int | float]:
    flat: dict[str, str | int | float] = {}
    for name, cell in row.items():
        if isinstance(cell, Estimate):
            flat |= {name: cell.mean, f"{name} low": cell.low, f"{name} high": cell.high}
        else:
            flat[name] = cell
    return flat
