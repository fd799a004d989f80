"""Many reports as one HTML page. It needs no network and runs no script.

The page begins with one small picture and one sentence for each experiment; a section for each follows.
"""

import base64
import html
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from regard.inspection.records import Picture, Table
from regard.inspection.table import Column, columns_of
from regard.inspection.text import visible
from regard.lab.full_run import full_run
from regard.lab.render import pictures, reasons, small, tables, thumbnail
from regard.lab.report import VERDICTS, Report
from regard.lab.run_all import Failed, Outcome
from regard.pages.document import content_hash
from regard.plot.describe import describe

STYLE = Path(__file__).parent / "page.css"
SHORT = 14  # letters that are not broken into lines
COLORS = {"confirmed": "confirmed", "partly": "partly", "corrected": "corrected"}


def html_page(outcomes: Sequence[Outcome], questions: dict[str, str], folder: Path) -> str:
    """All outcomes as one page. `questions` are by name; `folder` holds the files that `write` made of the reports."""
    style = STYLE.read_text(encoding="utf-8")
    body = [_header(outcomes, questions, folder), *(_section(n, each, folder) for n, each in enumerate(outcomes, 1))]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        f"style-src '{content_hash(style)}'; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>The lab of regard</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _header(outcomes: Sequence[Outcome], questions: dict[str, str], folder: Path) -> str:
    lines = ["<header>", "<h1>The lab of regard</h1>"]
    reports = [each for each in outcomes if isinstance(each, Report)]
    if reports:
        run = reports[0].settings
        speed = "a quick run, with wide intervals" if run["quick"] else "the full run"
        lines.append(
            f"<p>{len(reports)} experiments about attention: {speed}. Each asks a question and answers it with a small "
            "computation on this machine.</p>"
        )
    lines.append('<nav><ol class="contents">')
    lines += [_card(each, _text(questions.get(each.name, "")), folder) for each in outcomes]
    lines.append("</ol></nav>")
    if reports:
        lines += _notes(reports)
    return "\n".join([*lines, "</header>"])


def _card(outcome: Outcome, question: str, folder: Path) -> str:
    """One small picture and one sentence."""
    link = f'<a href="#{outcome.name}">{outcome.name}</a>'
    if isinstance(outcome, Failed):
        return f'<li>{link}<p class="asked">{question}</p><p class="failed">Not run: {_text(outcome.reason)}</p></li>'
    said = _text(outcome.takeaway.sentence if outcome.takeaway else outcome.finding)
    full = full_run(outcome)
    if full and outcome.takeaway and outcome.takeaway.verdict == "not shown" and full.takeaway:
        said += f" The full run: {_text(full.takeaway)}"
    image = _image(small(outcome), thumbnail(outcome, folder))
    drawn = f'<a class="small" href="#{outcome.name}">{image}</a>'
    return f'<li>{link}<p class="asked">{question}</p>{drawn}<p>{said}</p></li>'


def _notes(reports: Sequence[Report]) -> list[str]:
    """How the numbers were made, and how many claims got which verdict."""
    run = reports[0].settings
    kinds = [claim.verdict for report in reports for compared in report.compared for claim in compared.claims]
    counts = Counter(kinds)
    named = [f'<span class="{COLORS.get(kind, "")}">{counts[kind]} {kind}</span>' for kind in VERDICTS if counts[kind]]
    return [
        f'<p class="run">Seed {run["seed"]}, regard {_text(run["regard"])}, torch {_text(run["torch"])}, '
        f"{_text(run['machine'])}. Intervals are 95% over repetitions.</p>",
        "<p>The experiments are held against four documents, which are called seeds: "
        f"{len(kinds)} of their claims were looked at, {', '.join(named)}. <em>Not shown</em>: the interval holds a "
        "bound of the rule, so this many runs cannot tell.</p>",
    ]


def _section(number: int, outcome: Outcome, folder: Path) -> str:
    head = f'<section id="{outcome.name}">\n<h2><span class="number">{number}</span> {outcome.name}</h2>'
    if isinstance(outcome, Failed):
        return f'{head}\n<p class="failed">Not run: {_text(outcome.reason)}</p>\n</section>'
    figures = [_figure(picture, svg) for picture, svg in pictures(outcome, folder)]
    parts = [
        head,
        f'<p class="question">{_text(outcome.question)}</p>',
        *([f'<p class="why">{_text(outcome.why)}</p>'] if outcome.why else []),
        *([f'<p class="setup"><strong>Setup.</strong> {_text(outcome.setup)}</p>'] if outcome.setup else []),
        *figures[:1],
    ]
    if outcome.takeaway:
        parts.append(f'<p class="takeaway">{_text(outcome.takeaway.sentence)}</p>')
        parts += [f'<p class="reason">{_text(each)}</p>' for each in reasons(outcome.takeaway)]
    parts.append(f'<p class="finding"><strong>In numbers.</strong> {_text(outcome.finding)}</p>')
    full = full_run(outcome)
    if full:
        parts.append(
            f'<p class="full"><strong>The full run found</strong> ({_text(full.made)}): {_text(full.said)}</p>'
        )
    for table, drawn in zip_longest(tables(outcome), figures[1:]):
        parts += [] if table is None else [_table(table)]
        parts += [] if drawn is None else [drawn]
    for compared in outcome.compared:
        table = compared.table()
        if full:
            rows = [
                (*row[:-1], f"{row[-1]}{full.verdict(claim)}")
                for row, claim in zip(table.rows, compared.claims, strict=True)
            ]
            table = Table(table.columns, rows, table.title)
        parts.append(_table(table, [COLORS.get(claim.verdict, "") for claim in compared.claims]))
    run = outcome.settings
    command = f"regard lab {outcome.name}{' --quick' if run['quick'] else ''} --seed {run['seed']}"
    listed = " · ".join(f"{_text(name)} {_text(value)}" for name, value in run.items())
    return "\n".join([*parts, f'<p class="run"><code>{command}</code> · {listed}</p>', "</section>"])


def _figure(picture: Picture, svg: Path) -> str:
    return f"<figure>{_image(picture, svg)}</figure>"


def _image(picture: Picture, svg: Path) -> str:
    content = base64.b64encode(svg.read_bytes()).decode("ascii")
    return f'<img alt="{html.escape(describe(picture), quote=True)}" src="data:image/svg+xml;base64,{content}">'


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
