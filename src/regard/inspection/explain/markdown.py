"""An explanation as Markdown: headings, tables, and arithmetic as code, which needs no extension to read."""

from regard.inspection.explain.latex import markdown_text
from regard.inspection.explain.notation import typeset
from regard.inspection.explain.record import Explanation, Matrix, Step
from regard.inspection.explain.text import cells


def markdown(explanation: Explanation) -> str:
    """One second-level heading for the whole, a third-level heading per step."""
    parts = [f"## {_prose(explanation.title)}"]
    parts.append("\n".join(f"- {_prose(note)}" for note in explanation.notes))
    parts[-1] += f"\n- Worked out below: the query {markdown_text(explanation.row_label)}."
    for index, step in enumerate(explanation.steps, 1):
        parts += _step(index, step, explanation.digits)
    return "\n\n".join(parts) + "\n"


def _prose(text: str) -> str:
    """Sentences of our own: markup characters in them come from the names of parts, such as `<2×2 float64>`."""
    return "".join("\\" + each if each in "\\`*_<>|[]&$~" else each for each in text)


def _step(index: int, step: Step, digits: int) -> list[str]:
    parts = [f"### {index}. {_prose(step.title)}"]
    if step.formula is not None:
        parts.append(f"`{step.formula.text}`")
    parts.append(_prose(step.sentence))
    parts += [_table(table, digits) for table in step.tables]
    if step.worked:
        parts.append("\n".join(f"- {markdown_text(each.label)}: `{each.math.text}`" for each in step.worked))
    return parts


def _table(matrix: Matrix, digits: int) -> str:
    shown = cells(matrix, digits)
    headings = [markdown_text(label) for label in shown.columns] or [" "] * shown.width
    lines = [[_prose(shown.name.text) or " ", *headings], ["---", *["---:"] * shown.width]]
    for label, row in zip(shown.rows, shown.values, strict=True):
        lines.append([markdown_text(label) or " ", *(typeset(cell).text for cell in row)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
