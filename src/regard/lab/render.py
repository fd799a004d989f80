"""A report for readers: as text for a terminal, as JSON and as files."""

import json
import textwrap
from collections.abc import Iterator, Sequence
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

from regard import plot
from regard.inspection.files import replace
from regard.inspection.records import Panel, Picture, Table
from regard.inspection.table import columns_of
from regard.inspection.text import display_width
from regard.lab.full_run import FullRun, full_run
from regard.lab.report import COLUMNS, Compared, Report, Takeaway, printed
from regard.plot.save import as_json as record_json
from regard.plot.save import save_as

NARROWEST = 40
SHORTEST = 12  # letters of a text that is broken into lines


def text(report: Report, *, width: int = 100, color: str = "auto") -> str:
    """The report in lines of at most `width` columns.

    Question, why and setup, the first picture, takeaway and finding, tables and pictures, the seed's figures, settings.
    """
    width = max(width, NARROWEST)
    parts = [_wrapped(each, width) for each in (report.question, report.why, report.setup) if each]
    drawn = [
        plot.render(picture, width=width, color=color)
        for part in (report, report.timing)
        for picture in (part.pictures if part else ())
    ]
    parts += drawn[:1]
    if report.takeaway:
        parts.append(_wrapped(f"Takeaway: {report.takeaway.sentence}", width))
        parts.append("\n".join(_wrapped(each, width, "  ") for each in reasons(report.takeaway)))
    parts.append(_wrapped(f"Finding: {report.finding}", width))
    full = full_run(report)
    if full:
        parts.append(_wrapped(f"The full run found ({full.made}): {full.said}", width))
    parts += [fitted(table, width) for table in tables(report)]
    parts += drawn[1:]
    parts += [_claims(compared, full, width) for compared in report.compared]
    parts.append(_wrapped(f"({', '.join(f'{name} {value}' for name, value in report.settings.items())})", width))
    return "\n\n".join(parts)


def reasons(takeaway: Takeaway) -> list[str]:
    """The numbers that a takeaway rests on, each with its rule and what the rule says."""
    return [f"{each.measured}: {printed(each.here)} ({each.rule}): {each.verdict}" for each in takeaway.evidence]


def _wrapped(sentence: str, width: int, indent: str = "") -> str:
    lines = textwrap.wrap(sentence, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines)


def _claims(compared: Compared, full: FullRun | None, width: int) -> str:
    """Each quotation, and below it what was measured for it, the rule and the verdict."""
    lines, last = [_wrapped(f"The seed ({compared.source}) beside this run", width)], ""
    for claim in compared.claims:
        if claim.quote.plain != last:
            last = claim.quote.plain
            lines.append(_wrapped(f"“{last}”", width, "  "))
        lines.append(_wrapped(f"{claim.measured}: {printed(claim.here)} ({claim.rule})", width, "    "))
        lines.append(_wrapped(f"→ {claim.outcome}{full.verdict(claim) if full else ''}", width, "    "))
    return "\n".join(lines)


def fitted(table: Table, width: int) -> str:
    """The table as text; if it is too wide, its columns in groups, each group beginning with the first column."""
    groups = [[0]]
    for index in range(1, len(table.columns)):
        wider = plot.table(_columns(table, [*groups[-1], index]))
        if len(groups[-1]) > 1 and max(map(display_width, wider.split("\n"))) > width:
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


def as_json(report: Report) -> str:
    """The report as JSON text."""
    timing, full = report.timing, full_run(report)
    record = {
        "kind": "Report",
        "name": report.name,
        "question": report.question,
        "why": report.why,
        "setup": report.setup,
        "takeaway": report.takeaway and {"sentence": report.takeaway.sentence, "evidence": reasons(report.takeaway)},
        "finding": report.finding,
        "full_run": full and {"made": full.made, "takeaway": full.takeaway, "finding": full.finding},
        "settings": report.settings,
        "tables": _records(report.tables),
        "pictures": _records(report.pictures),
        "compared": _records([compared.table() for compared in report.compared]),
        "timing": timing and {"tables": _records(timing.tables), "pictures": _records(timing.pictures)},
    }
    return json.dumps(record, ensure_ascii=False, indent=1) + "\n"


def _records(records: Sequence[Picture | Table]) -> list[Any]:
    return [json.loads(record_json(record)) for record in records]


def write(report: Report, folder: Path) -> list[Path]:
    """The report as files: NAME.json holds everything; pictures as png and svg, tables as csv.

    The first picture and table carry the experiment's name, the others a number behind it; `NAME-small.svg` is the
    thumbnail, and `NAME-seed.csv` holds the figures of the sources. Each file is replaced whole or not at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for picture, svg in pictures(report, folder):
        paths = (svg.with_suffix(".png"), svg)
        save_as(picture, paths)
        written += paths
    written.append(thumbnail(report, folder))
    save_as(Panel((small(report),)), written[-1:])  # a part of a panel is smaller, and its letters larger beside it
    for table, stem in zip(tables(report), _stems(report.name), strict=False):
        written.append(folder / f"{stem}.csv")
        plot.save(table, written[-1])
    if report.compared:
        written.append(folder / f"{report.name}-seed.csv")
        rows = [(compared.source, *row) for compared in report.compared for row in compared.table().rows]
        plot.save(Table(("source", *COLUMNS), rows), written[-1])
    written.append(folder / f"{report.name}.json")
    replace(written[-1], as_json(report).encode())
    return written


def pictures(report: Report, folder: Path) -> Iterator[tuple[Picture, Path]]:
    """Every picture, and where `write` puts it as svg."""
    drawn = (*report.pictures, *(report.timing.pictures if report.timing else ()))
    for picture, stem in zip(drawn, _stems(report.name), strict=False):
        yield picture, folder / f"{stem}.svg"


def small(report: Report) -> Picture:
    """The picture of the page of all reports: its thumbnail, the first picture, or the first one of a panel."""
    picture = report.thumbnail or report.pictures[0]
    while isinstance(picture, Panel):
        picture = picture.pictures[0]
    return picture


def thumbnail(report: Report, folder: Path) -> Path:
    """Where `write` puts the thumbnail."""
    return folder / f"{report.name}-small.svg"


def tables(report: Report) -> tuple[Table, ...]:
    """Every table, those of measured times last."""
    return (*report.tables, *(report.timing.tables if report.timing else ()))


def _stems(name: str) -> Iterator[str]:
    """NAME, NAME-2, NAME-3, …"""
    yield name
    yield from (f"{name}-{number}" for number in count(2))
