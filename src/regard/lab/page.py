"""A report for readers: as text for a terminal, as JSON, and as files."""

import json
import textwrap
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from regard import plot
from regard.inspection.files import replace
from regard.inspection.records import Picture, Table
from regard.inspection.table import columns_of
from regard.inspection.text import display_width
from regard.lab.report import Report
from regard.plot.save import as_json as record_json
from regard.plot.save import save_as

NARROWEST = 40
SHORTEST = 12  # letters of a text that is broken into lines


def text(report: Report, *, width: int = 100, color: str = "auto") -> str:
    """Question, tables, pictures, the seed's figures, finding and settings, in lines of at most `width` columns."""
    width = max(width, NARROWEST)
    timing = report.timing
    parts = [
        _wrapped(report.question, width),
        *(fitted(table, width) for table in report.tables),
        *(plot.render(picture, width=width, color=color) for picture in report.pictures),
        *(fitted(table, width) for table in (timing.tables if timing else ())),
        *(plot.render(picture, width=width, color=color) for picture in (timing.pictures if timing else ())),
        *(fitted(compared.table(), width) for compared in report.compared),
        _wrapped(f"Finding: {report.finding}", width),
        _wrapped(_run(report), width),
    ]
    return "\n\n".join(parts)


def _run(report: Report) -> str:
    return f"({', '.join(f'{name} {value}' for name, value in report.settings.items())})"


def _wrapped(sentence: str, width: int) -> str:
    return "\n".join(textwrap.wrap(sentence, width, break_on_hyphens=False))


def fitted(table: Table, width: int) -> str:
    """The table as text; if it is too wide, its columns in groups, each group beginning with the first column."""
    groups = [[0]]
    for index in range(1, len(table.columns)):
        if len(groups[-1]) > 1 and _width(table, [*groups[-1], index]) > width:
            groups.append([0])
        groups[-1].append(index)
    texts = [plot.table(_broken(_columns(table, group), width)) for group in groups]
    title = [_wrapped(table.title, width)] if table.title else []
    return "\n".join([*title, "\n\n".join(texts)])


def _columns(table: Table, group: list[int]) -> Table:
    rows = [[row[index] for index in group] for row in table.rows]
    return Table([table.columns[index] for index in group], rows)


def _broken(table: Table, width: int) -> Table:
    """The table with long texts in several lines, the widest first, until it fits or nothing more can be broken."""
    columns = columns_of(table)
    room = [max(map(display_width, (column.name, *column.texts))) for column in columns]
    least = [max(display_width(column.name), SHORTEST) if column.words else room[n] for n, column in enumerate(columns)]
    while sum(room) + 2 * (len(room) - 1) > width and any(map(int.__gt__, room, least)):
        room[max((n for n in range(len(room)) if room[n] > least[n]), key=lambda n: room[n])] -= 1
    rows: list[tuple[str, ...]] = []
    for index in range(len(table.rows)):
        cells = [
            textwrap.wrap(column.texts[index], wide, break_on_hyphens=False)
            if column.words
            else [column.texts[index].rjust(wide)]
            for column, wide in zip(columns, room, strict=True)
        ]
        rows += zip_longest(*cells, fillvalue="")
    names = [
        name if column.words else name.rjust(wide)
        for name, column, wide in zip(table.columns, columns, room, strict=True)
    ]
    return Table(names, rows) if len(rows) > len(table.rows) else table


def _width(table: Table, group: list[int]) -> int:
    return max(map(display_width, plot.table(_columns(table, group)).split("\n")))


def as_record(report: Report) -> dict[str, Any]:
    """The report in what JSON can hold."""
    timing = report.timing
    return {
        "kind": "Report",
        "name": report.name,
        "question": report.question,
        "finding": report.finding,
        "settings": report.settings,
        "tables": [_record(table) for table in report.tables],
        "pictures": [_record(picture) for picture in report.pictures],
        "compared": [_record(compared.table()) for compared in report.compared],
        "timing": timing
        and {
            "tables": [_record(table) for table in timing.tables],
            "pictures": [_record(picture) for picture in timing.pictures],
        },
    }


def _record(record: Picture | Table) -> Any:
    return json.loads(record_json(record))


def as_json(report: Report) -> str:
    """The report as JSON text."""
    return json.dumps(as_record(report), ensure_ascii=False, indent=1) + "\n"


def write(report: Report, folder: Path) -> list[Path]:
    """The report as files: NAME.json holds everything; pictures as png and svg, tables as csv.

    The first picture and table carry the experiment's name, the others a number behind it; `NAME-seed.csv` holds the
    figures of the sources. Each file is replaced whole or not at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    timing = report.timing
    tables = (*report.tables, *(timing.tables if timing else ()))
    written: list[Path] = []
    for picture, svg in pictures(report, folder):
        paths = (svg.with_suffix(".png"), svg)
        save_as(picture, paths)
        written += paths
    for table, stem in zip(tables, _stems(report.name), strict=False):
        written.append(folder / f"{stem}.csv")
        plot.save(table, written[-1])
    if report.compared:
        written.append(folder / f"{report.name}-seed.csv")
        plot.save(_claims(report), written[-1])
    written.append(folder / f"{report.name}.json")
    replace(written[-1], as_json(report).encode())
    return written


def pictures(report: Report, folder: Path) -> Iterator[tuple[Picture, Path]]:
    """Every picture, and where `write` puts it as svg."""
    timing = report.timing
    found = (*report.pictures, *(timing.pictures if timing else ()))
    for picture, stem in zip(found, _stems(report.name), strict=False):
        yield picture, folder / f"{stem}.svg"


def _stems(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}-{number}"
        number += 1


def _claims(report: Report) -> Table:
    rows = [
        (compared.source, claim.says, claim.figure, claim.here, claim.verdict)
        for compared in report.compared
        for claim in compared.claims
    ]
    return Table(("source", "claim", "the seed", "here", "verdict"), rows)
