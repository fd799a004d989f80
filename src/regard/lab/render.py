"""A report for readers: as text for a terminal, as JSON, as files, and many reports as one HTML page.

The page has a table of contents, needs no network and runs no script.
"""

import base64
import html
import json
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

from regard import plot
from regard.inspection.files import replace
from regard.inspection.records import Picture, Table
from regard.inspection.table import Column, columns_of
from regard.inspection.text import display_width, visible
from regard.lab.report import COLUMNS, VERDICTS, Compared, Report, Takeaway, printed
from regard.lab.run_all import Failed, Outcome
from regard.pages.document import content_hash
from regard.plot.save import as_json as record_json
from regard.plot.save import save_as

NARROWEST = 40
SHORTEST = 12  # letters of a text that is broken into lines
STYLE = Path(__file__).parent / "render.css"
SHORT = 14  # letters that are not broken into lines
COLORS = {"confirmed": "confirmed", "partly": "partly", "corrected": "corrected"}


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
    parts += [fitted(table, width) for table in _tables(report)]
    parts += drawn[1:]
    parts += [_claims(compared, width) for compared in report.compared]
    parts.append(_wrapped(f"({', '.join(f'{name} {value}' for name, value in report.settings.items())})", width))
    return "\n\n".join(parts)


def reasons(takeaway: Takeaway) -> list[str]:
    """The numbers that a takeaway rests on, each with its rule and what the rule says."""
    return [f"{each.measured}: {printed(each.here)} ({each.rule}): {each.verdict}" for each in takeaway.evidence]


def _wrapped(sentence: str, width: int, indent: str = "") -> str:
    lines = textwrap.wrap(sentence, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines)


def _claims(compared: Compared, width: int) -> str:
    """Each quotation, and below it what was measured for it, the rule and the verdict."""
    lines, last = [_wrapped(f"The seed ({compared.source}) beside this run", width)], ""
    for claim in compared.claims:
        if claim.quote.plain != last:
            last = claim.quote.plain
            lines.append(_wrapped(f"“{last}”", width, "  "))
        lines.append(_wrapped(f"{claim.measured}: {printed(claim.here)} ({claim.rule})", width, "    "))
        lines.append(_wrapped(f"→ {claim.outcome}", width, "    "))
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
    timing = report.timing
    record = {
        "kind": "Report",
        "name": report.name,
        "question": report.question,
        "why": report.why,
        "setup": report.setup,
        "takeaway": report.takeaway and {"sentence": report.takeaway.sentence, "evidence": reasons(report.takeaway)},
        "finding": report.finding,
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

    The first picture and table carry the experiment's name, the others a number behind it; `NAME-seed.csv` holds the
    figures of the sources. Each file is replaced whole or not at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for picture, svg in pictures(report, folder):
        paths = (svg.with_suffix(".png"), svg)
        save_as(picture, paths)
        written += paths
    for table, stem in zip(_tables(report), _stems(report.name), strict=False):
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


def _tables(report: Report) -> tuple[Table, ...]:
    return (*report.tables, *(report.timing.tables if report.timing else ()))


def _stems(name: str) -> Iterator[str]:
    """NAME, NAME-2, NAME-3, …"""
    yield name
    yield from (f"{name}-{number}" for number in count(2))


def html_page(outcomes: Sequence[Outcome], questions: dict[str, str], folder: Path) -> str:
    """All outcomes as one page. `questions` are by name; `folder` holds the files that `write` made of the reports."""
    style = STYLE.read_text(encoding="utf-8")
    body = [_header(outcomes, questions), *(_section(n, each, folder) for n, each in enumerate(outcomes, 1))]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        f"style-src '{content_hash(style)}'; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>The lab of regard</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _header(outcomes: Sequence[Outcome], questions: dict[str, str]) -> str:
    lines = ["<header>", "<h1>The lab of regard</h1>"]
    if reports := [each for each in outcomes if isinstance(each, Report)]:
        run = reports[0].settings
        speed = "a quick run, with wide intervals" if run["quick"] else "the full run"
        lines.append(
            f"<p>{len(reports)} experiments about attention: {speed}, seed {run['seed']}, regard "
            f"{_text(run['regard'])}, torch {_text(run['torch'])}, {_text(run['machine'])}. Intervals are 95% over "
            "repetitions. Seeds are the four documents that the experiments are held against.</p>"
        )
        kinds = [claim.verdict for report in reports for compared in report.compared for claim in compared.claims]
        counts = Counter(kinds)
        named = [
            f'<span class="{COLORS.get(kind, "")}">{counts[kind]} {kind}</span>' for kind in VERDICTS if counts[kind]
        ]
        lines.append(
            f"<p>{len(kinds)} claims of the seeds were looked at: {', '.join(named)}. <em>Not shown</em>: the "
            "interval holds a bound of the rule, so this many runs cannot tell.</p>"
        )
    lines.append('<nav><ol class="contents">')
    for each in outcomes:
        finding = (
            _text(each.finding) if isinstance(each, Report) else f'<strong class="failed">{_text(each.reason)}</strong>'
        )
        question = _text(questions.get(each.name, ""))
        link = f'<a href="#{each.name}">{each.name}</a>'
        lines.append(f'<li>{link} <span class="asked">{question}</span><p>{finding}</p></li>')
    return "\n".join([*lines, "</ol></nav>", "</header>"])


def _section(number: int, outcome: Outcome, folder: Path) -> str:
    head = f'<section id="{outcome.name}">\n<h2><span class="number">{number}</span> {outcome.name}</h2>'
    if isinstance(outcome, Failed):
        return f'{head}\n<p class="failed">Not run: {_text(outcome.reason)}</p>\n</section>'
    figures = [_figure(picture, svg) for picture, svg in pictures(outcome, folder)]
    parts = [
        head,
        f'<p class="question">{_text(outcome.question)}</p>',
        *(f"<p>{_text(each)}</p>" for each in (outcome.why, outcome.setup) if each),
        *figures[:1],
    ]
    if outcome.takeaway:
        parts.append(f'<p class="takeaway">{_text(outcome.takeaway.sentence)}</p>')
        parts += [f'<p class="reason">{_text(each)}</p>' for each in reasons(outcome.takeaway)]
    parts.append(f'<p class="finding">{_text(outcome.finding)}</p>')
    for table, drawn in zip_longest(_tables(outcome), figures[1:]):
        parts += [] if table is None else [_table(table)]
        parts += [] if drawn is None else [drawn]
    for compared in outcome.compared:
        parts.append(_table(compared.table(), [COLORS.get(claim.verdict, "") for claim in compared.claims]))
    run = outcome.settings
    command = f"regard lab {outcome.name}{' --quick' if run['quick'] else ''} --seed {run['seed']}"
    listed = " · ".join(f"{_text(name)} {_text(value)}" for name, value in run.items())
    return "\n".join([*parts, f'<p class="run"><code>{command}</code> · {listed}</p>', "</section>"])


def _figure(picture: Picture, svg: Path) -> str:
    content = base64.b64encode(svg.read_bytes()).decode("ascii")
    name = html.escape(visible(getattr(picture, "title", "") or "picture"), quote=True)
    return f'<figure><img alt="{name}" src="data:image/svg+xml;base64,{content}"></figure>'


def _table(table: Table, kinds: Sequence[str] = ()) -> str:
    places = [(column, _place(column)) for column in columns_of(table)]
    lines = ['<div class="wide"><table>']
    if table.title:
        lines.append(f"<caption>{_text(table.title)}</caption>")
    names = [f'<th class="{place}">{_text(column.name)}</th>' for column, place in places]
    lines.append(f"<thead><tr>{''.join(names)}</tr></thead>\n<tbody>")
    for index in range(len(table.rows)):
        kind = f' class="{kinds[index]}"' if kinds and kinds[index] else ""
        cells = [f'<td class="{place}">{_text(column.texts[index])}</td>' for column, place in places]
        lines.append(f"<tr{kind}>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


def _place(column: Column) -> str:
    """Numbers to the right; words to the left, and in one line if they are short."""
    if not column.words:
        return "numbers"
    return "words short" if max(map(len, column.texts), default=0) <= SHORT else "words"


def _text(value: object) -> str:
    return html.escape(" ".join(visible(line) for line in str(value).splitlines()))
