"""book: many reports as one HTML page with a table of contents. It needs no network and runs no script."""

import base64
import html
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from regard.inspection.records import Picture, Table
from regard.inspection.table import Column, columns_of
from regard.inspection.text import visible
from regard.lab.everything import Failed, Outcome
from regard.lab.page import pictures
from regard.lab.report import VERDICTS, Compared, Report
from regard.plot.document import hashed

STYLE = Path(__file__).parent / "book.css"
SHORT = 14  # letters that are not broken into lines
COLORS = {"confirmed": "confirmed", "partly": "partly", "corrected": "corrected", "not confirmed": "corrected"}


def book(outcomes: Sequence[Outcome], asked: dict[str, str], folder: Path) -> str:
    """The page. `asked` has what each experiment asks, by name; `folder`, what `page.write` made of the reports."""
    style = STYLE.read_text(encoding="utf-8")
    reports = [each for each in outcomes if isinstance(each, Report)]
    body = [
        _opening(reports, outcomes, asked),
        *(_section(number, each, folder) for number, each in enumerate(outcomes, 1)),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        f"style-src '{hashed(style)}'; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>The lab of regard</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _opening(reports: Sequence[Report], outcomes: Sequence[Outcome], asked: dict[str, str]) -> str:
    lines = ["<header>", "<h1>The lab of regard</h1>"]
    if reports:
        run = reports[0].settings
        speed = "a quick run, with wide intervals" if run["quick"] else "the full run"
        lines.append(
            f"<p>{len(reports)} experiments about attention: {speed}, seed {run['seed']}, regard "
            f"{_text(run['regard'])}, torch {_text(run['torch'])}, {_text(run['machine'])}. Intervals are 95% over "
            "repetitions. Seeds are the four documents that the experiments are held against.</p>"
        )
        lines.append(_tally(reports))
    lines.append('<nav><ol class="contents">')
    for each in outcomes:
        said = (
            _text(each.finding) if isinstance(each, Report) else f'<strong class="failed">{_text(each.reason)}</strong>'
        )
        lines.append(
            f'<li><a href="#{each.name}">{each.name}</a> <span class="asked">{_text(asked.get(each.name, ""))}</span>'
            f"<p>{said}</p></li>"
        )
    return "\n".join([*lines, "</ol></nav>", "</header>"])


def _tally(reports: Sequence[Report]) -> str:
    """How the claims of the seeds fared."""
    kinds = [claim.kind for report in reports for compared in report.compared for claim in compared.claims]
    count = Counter(kinds)
    named = [f'<span class="{COLORS.get(kind, "")}">{count[kind]} {kind}</span>' for kind in VERDICTS if count[kind]]
    return (
        f"<p>{len(kinds)} claims of the seeds were looked at: {', '.join(named)}. <em>Not shown</em>: the run is too "
        "small to tell; <em>not said</em>: the seeds say nothing of it.</p>"
    )


def _section(number: int, outcome: Outcome, folder: Path) -> str:
    head = f'<section id="{outcome.name}">\n<h2><span class="number">{number}</span> {outcome.name}</h2>'
    if isinstance(outcome, Failed):
        return f'{head}\n<p class="failed">Not run: {_text(outcome.reason)}</p>\n</section>'
    return "\n".join([head, *_parts(outcome, folder), "</section>"])


def _parts(report: Report, folder: Path) -> Iterator[str]:
    yield f'<p class="question">{_text(report.question)}</p>'
    yield f'<p class="finding">{_text(report.finding)}</p>'
    timing = report.timing
    tables = [*report.tables, *(timing.tables if timing else ())]
    for table, drawn in zip_longest(tables, pictures(report, folder)):
        if table is not None:
            yield _table(table)
        if drawn is not None:
            yield _picture(*drawn)
    for compared in report.compared:
        yield _claims(compared)
    told = " · ".join(f"{_text(name)} {_text(value)}" for name, value in report.settings.items())
    yield f'<p class="run"><code>regard lab {report.name}{_options(report)}</code> · {told}</p>'


def _options(report: Report) -> str:
    quick = " --quick" if report.settings["quick"] else ""
    return f"{quick} --seed {report.settings['seed']}"


def _table(table: Table, kinds: Sequence[str] = ()) -> str:
    columns = columns_of(table)
    lines = ['<div class="wide"><table>']
    if table.title:
        lines.append(f"<caption>{_text(table.title)}</caption>")
    places = [_place(column) for column in columns]
    names = "".join(
        f'<th class="{place}">{_text(column.name)}</th>' for place, column in zip(places, columns, strict=True)
    )
    lines.append(f"<thead><tr>{names}</tr></thead>\n<tbody>")
    for index in range(len(table.rows)):
        kind = f' class="{kinds[index]}"' if kinds and kinds[index] else ""
        cells = (
            f'<td class="{place}">{_text(column.texts[index])}</td>'
            for place, column in zip(places, columns, strict=True)
        )
        lines.append(f"<tr{kind}>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


def _place(column: Column) -> str:
    """Numbers to the right; words to the left, and in one line if they are short."""
    if not column.words:
        return "numbers"
    return "words short" if max(map(len, column.texts), default=0) <= SHORT else "words"


def _claims(compared: Compared) -> str:
    return _table(compared.table(), [COLORS.get(claim.kind, "") for claim in compared.claims])


def _picture(picture: Picture, svg: Path) -> str:
    content = base64.b64encode(svg.read_bytes()).decode("ascii")
    name = html.escape(visible(getattr(picture, "title", "") or "picture"), quote=True)
    return f'<figure><img alt="{name}" src="data:image/svg+xml;base64,{content}"></figure>'


def _text(value: object) -> str:
    return html.escape(" ".join(visible(line) for line in str(value).splitlines()))
