"""An Explanation as one HTML document: each step folds, and so does its arithmetic. It needs neither script nor net."""

import base64
import hashlib
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from regard.inspection.text import visible

if TYPE_CHECKING:
    from regard.inspection.explain.record import Explanation, Matrix, Step

_STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 22%, transparent); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; }
ul.notes { padding-left: 1.2rem; opacity: 0.85; }
details.step { border-top: 1px solid var(--line); padding: 0.6rem 0; }
summary { cursor: pointer; }
details.step > summary { font-weight: 600; font-size: 1.05rem; }
details.step > summary code { font-weight: 400; margin-left: 1rem; }
details.step > :not(summary) { margin-left: 1.1rem; }
details.worked { margin-top: 0.5rem; }
code, td, th { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 0.9rem; }
.tables { display: flex; flex-wrap: wrap; gap: 0.8rem 2.5rem; overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: 0.1rem 0.55rem; text-align: right; }
th:first-child { text-align: left; }
thead th { border-bottom: 1px solid var(--line); }
tr.row td, tr.row th { background: color-mix(in srgb, #3b82f6 14%, transparent); }
td.hidden { opacity: 0.5; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.1rem 1.2rem; margin: 0.4rem 0; }
dd { margin: 0; }
dt { opacity: 0.8; }
@media print { details > :not(summary) { display: block; } }
"""


def document(explanation: "Explanation") -> str:
    """The whole document; steps are open, the arithmetic of the worked row is folded away."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    row = escape(visible(explanation.row_label))
    notes = "".join(f"<li>{escape(note)}</li>" for note in explanation.notes)
    steps = "\n".join(
        _step(number, step, explanation.row_label, explanation.digits)
        for number, step in enumerate(explanation.steps, 1)
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-{digest}'">
<title>{escape(explanation.title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(explanation.title)}</h1>
<ul class="notes">{notes}<li>Worked out: the query <b>{row}</b>, marked in the tables.</li></ul>
{steps}
</body>
</html>
"""


def _step(number: int, step: "Step", row: str, digits: int) -> str:
    formula = f"<code>{escape(step.formula.text)}</code>" if step.formula is not None else ""
    parts = [
        f"<summary>{number}. {escape(step.title)}{formula}</summary>",
        f"<p>{escape(step.sentence)}</p>",
    ]
    if step.tables:
        parts.append(f'<div class="tables">{"".join(_table(table, row, digits) for table in step.tables)}</div>')
    if step.worked:
        lines = "".join(
            f"<dt>{escape(visible(line.label))}</dt><dd><code>{escape(line.math.text)}</code></dd>"
            for line in step.worked
        )
        parts.append(f'<details class="worked"><summary>The arithmetic</summary><dl>{lines}</dl></details>')
    return f'<details class="step" open>{"".join(parts)}</details>'


def _table(matrix: "Matrix", row: str, digits: int) -> str:
    named = any(matrix.rows)
    name = escape(matrix.name.text)
    headings = [escape(visible(label)) for label in matrix.columns] or [""] * matrix.width
    if not named:
        head = f'<tr><th colspan="{matrix.width}">{name}</th></tr>'
    else:
        head = f"<tr><th>{name}</th>{''.join(f'<th>{label}</th>' for label in headings)}</tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(_rows(matrix, row, digits))}</tbody></table>"


def _rows(matrix: "Matrix", row: str, digits: int) -> Iterator[str]:
    labels = matrix.rows or ("",) * len(matrix.values)
    for label, cells in zip(labels, matrix.cells(digits), strict=True):
        marked = ' class="row"' if label and label == row else ""
        heading = f"<th>{escape(visible(label))}</th>" if any(matrix.rows) else ""
        texts = (
            '<td class="hidden">hidden</td>' if cell.text == "hidden" else f"<td>{escape(cell.text)}</td>"
            for cell in cells
        )
        yield f"<tr{marked}>{heading}{''.join(texts)}</tr>"
