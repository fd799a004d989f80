"""The playground as one HTML file, as the files that a local server hands out, and in a notebook.

Chapters are the files page/chapters/NN-name.js. A chapter that shows a real model has its numbers in data/NN-name.json.
Nothing lists them by hand: a new file is a new chapter.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from regard.inspection import files as written_files
from regard.lab import exercises
from regard.pages.assets import CONTENT_TYPES, Asset, assets, script
from regard.pages.document import from_template

PAGE = Path(__file__).with_name("page")
DATA = Path(__file__).with_name("data")
CHECK = Path(exercises.__file__).with_name("check.js")


@cache
def files() -> dict[str, Asset]:
    """Every file of the page. `chapters.js`, which lists the chapters, is made from their names, and their styles are
    appended to play.css."""
    own = {**assets(PAGE), "check.js": Asset(CHECK.read_bytes(), CONTENT_TYPES[".js"])}
    names = sorted(name for name in own if name.startswith("chapters/") and name.endswith(".js"))
    imports = [f'import {{ chapter as chapter{n} }} from "./{name}";\n' for n, name in enumerate(names)]
    listed = f"export const chapters = [{', '.join(f'chapter{n}' for n in range(len(names)))}];\n"
    styles = ["play.css", *sorted(name for name in own if name.startswith("chapters/") and name.endswith(".css"))]
    own["play.css"] = Asset(b"\n".join(own[name].content for name in styles), CONTENT_TYPES[".css"])
    own["chapters.js"] = Asset(("".join(imports) + listed).encode(), CONTENT_TYPES[".js"])
    return own


@cache
def data() -> dict[str, Any]:
    """What the page reads: numbers of chapters by their number, and exercises by theirs, as `regard exercise --json`
    has them."""
    stored = sorted(DATA.glob("*.json")) if DATA.is_dir() else []
    chapters = {str(int(path.name[:2])): json.loads(path.read_text(encoding="utf-8")) for path in stored}
    return {"chapters": chapters, "exercises": {str(each["number"]): each for each in exercises.data()}}


def document() -> str:
    """The whole playground as one HTML file. It needs no network, and only its own script and style may run."""
    own = files()
    style = own["play.css"].content.decode()
    return from_template("play.html", script=script(own, "main.js"), style=style, token="", data=data())


def export(path: str | Path) -> None:
    """Write the playground as one file that works from disk, without Python and without a network."""
    written_files.form_of(path, ("html",))
    written_files.replace(path, document().encode())
