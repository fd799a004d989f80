"""Weights in csv files: a table of numbers, with or without tokens beside it, or a line for each pair."""

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from regard.progress import display, report

LONG = ("query", "key", "weight")  # columns of a file with a line for each pair
REPORTED = 1 << 20  # bytes between two reports of progress
MOST = 1 << 28  # weights of a file with a line for each pair

Line = tuple[int, list[str]]  # its number, and its cells


class CsvTable(NamedTuple):
    """Numbers, (…, query, key), and the tokens of their axes; empty if there are none."""

    numbers: np.ndarray[Any, np.dtype[np.float64]]
    query_tokens: list[str]
    key_tokens: list[str]


def read_csv(path: Path) -> CsvTable:
    """A matrix, a line for each query; a first line or a first column that are no numbers are tokens.

    The cells are separated by commas, semicolons or tabs. A file of `A.save("head.csv")` is read too.
    """
    try:
        with display(lines=True), path.open(encoding="utf-8-sig", newline="") as file:
            lines = list(_lines(file, path.stat().st_size))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text in UTF-8: byte {error.start:,} cannot be read") from error
    except csv.Error as error:
        raise ValueError(f"{path} is not a csv file ({error})") from error
    if not lines:
        raise ValueError(f"{path} is empty")
    if set(LONG) <= set(lines[0][1]):
        return _pairs(path, lines)
    header = [] if _numbers(lines[0][1][1:] or lines[0][1]) is not None else lines.pop(0)[1]
    if not lines:
        raise ValueError(f"{path} has no number below its first line")
    tokens = [cells[0] for _, cells in lines] if any(_numbers(cells[:1]) is None for _, cells in lines) else []
    first, width = (1 if tokens else 0), len(lines[0][1])
    numbers = np.empty((len(lines), width - first))
    for place, (line, cells) in enumerate(lines):
        if len(cells) != width:
            raise ValueError(f"{path}: line {line:,} has {len(cells):,} cells, the lines before have {width:,}")
        if (row := _numbers(cells[first:])) is None:
            wrong = next(number for number in range(first, width) if _numbers([cells[number]]) is None)
            raise ValueError(f"{path}: line {line:,}, cell {wrong + 1:,} is no number: {cells[wrong][:40]!r}")
        numbers[place] = row
    return CsvTable(numbers, tokens, header[-numbers.shape[1] :] if numbers.shape[1] else [])


def _lines(file: TextIO, size: int) -> Iterator[Line]:
    """The lines that are not empty, cut at the first of these separators that the first line has."""
    start = file.readline()
    file.seek(0)
    separator = next((each for each in (",", ";", "\t") if each in start), ",")
    reader, told = csv.reader(file, delimiter=separator), 0
    for cells in reader:
        if (at := file.buffer.tell()) - told >= REPORTED:
            told = at
            report("reading", at, size, "bytes")
        if any(cell.strip() for cell in cells):
            yield reader.line_num, cells


def _numbers(cells: list[str]) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """The cells as numbers; None if one is none."""
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return None


def _pairs(path: Path, lines: list[Line]) -> CsvTable:
    """A line for each visible pair; pairs without a line are 0."""
    names = lines[0][1]
    axes = [number for number, name in enumerate(names) if name.startswith("axis_")]
    axes += [names.index("query"), names.index("key")]
    try:
        places = np.array([[int(cells[axis]) for axis in axes] for _, cells in lines[1:]], dtype=np.int64)
        values = np.array([float(cells[names.index("weight")]) for _, cells in lines[1:]])
    except (ValueError, IndexError, OverflowError) as error:
        raise ValueError(f"{path} has a line without numbers for query, key and weight ({error})") from error
    if not len(places) or places.min() < 0:
        raise ValueError(f"{path} has no pairs of queries and keys")
    shape = tuple(int(size) + 1 for size in places.max(0))
    if math.prod(shape) > MOST:
        raise ValueError(f"{path} names pairs of an array of shape {shape}, which is too large for a csv file")
    numbers = np.zeros(shape)
    numbers[tuple(places.T)] = values
    tokens = [_pair_tokens(lines[1:], names, axis, size) for axis, size in zip(LONG[:2], shape[-2:], strict=True)]
    return CsvTable(numbers, *tokens)


def _pair_tokens(lines: list[Line], names: list[str], axis: str, size: int) -> list[str]:
    if f"{axis}_token" not in names:
        return []
    word, place = names.index(f"{axis}_token"), names.index(axis)
    tokens = {int(cells[place]): cells[word] for _, cells in lines if len(cells) > word}
    return [tokens.get(number, "") for number in range(size)] if any(tokens.values()) else []
