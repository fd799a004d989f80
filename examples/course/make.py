"""Write the notebooks of the course from their pages: text and code as they stand, exercises filled in.

    python examples/course/make.py

A page is Markdown: blocks of Python become code cells, and `<!-- exercise 4 -->` becomes that exercise: its task, a
blank to fill in, a check, hints, and the worked answer folded away. The notebooks hold no outputs; their first line of
code asks for figures below the cells.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.inspection.files import replace
from regard.lab.exercises import Exercise, exercise

HERE = Path(__file__).parent
PART = re.compile(r"```python\n(?P<code>.*?)\n```|<!-- exercise (?P<number>\d+) -->", re.DOTALL)
WIDTH = 88
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
Cell = dict[str, Any]


def main() -> None:
    """Write every notebook."""
    for page in sorted((HERE / "pages").glob("*.md")):
        replace(HERE / f"{page.stem}.ipynb", notebook(page.read_text(encoding="utf-8")).encode())


def notebook(page: str) -> str:
    """The notebook of a page, as JSON."""
    cells = list(_cells(page))
    next(cell for cell in cells if cell["cell_type"] == "code")["source"][:0] = ["%matplotlib inline\n", "\n"]
    for index, cell in enumerate(cells, 1):
        cell["id"] = f"cell-{index:02}"
    made = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _cells(page: str) -> Iterator[Cell]:
    end = 0
    for part in PART.finditer(page):
        if text := page[end : part.start()].strip():
            yield _markdown(text)
        if part["code"] is not None:
            yield _code(part["code"])
        else:
            yield from _exercise(exercise(int(part["number"])))
        end = part.end()
    if text := page[end:].strip():
        yield _markdown(text)


def _exercise(chosen: Exercise) -> Iterator[Cell]:
    number = chosen.number
    yield _markdown(f"## Exercise {number}: {chosen.title}\n\n```text\n{chosen.task}\n```")
    if chosen.picture is not None:
        yield _code(f"draw(exercise({number}).picture)")
    blanks = "\n".join(f'    "{name}": None,' for name in chosen.parts)
    yield _code(f"answer = {{\n{blanks}\n}}", exercise=number)
    yield _code(f'print(*check(exercise({number}), answer), sep="\\n")')
    yield _code(f'print(hint(exercise({number}), ""))  # a part between the quotes, and a hint for it appears')
    worked = chosen.worked(WIDTH)
    yield _markdown(f"<details><summary>Worked answer</summary>\n\n```text\n{worked}\n```\n\n</details>")


def _markdown(text: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(text: str, **metadata: object) -> Cell:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": metadata,
        "outputs": [],
        "source": text.splitlines(keepends=True),
    }


if __name__ == "__main__":
    main()
