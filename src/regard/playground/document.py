"""The playground as one HTML file, as the files that a local server hands out, and in a notebook.

Chapters are the files page/chapters/NN-name.js. A chapter that shows a real model has its numbers in data/NN-name.json.
Nothing lists them by hand: a new file is a new chapter.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from regard.inspection import files as written_files
from regard.pages.assets import Asset, assets, script
from regard.pages.document import from_template

PAGE = Path(__file__).with_name("page")
DATA = Path(__file__).with_name("data")


@cache
def files() -> dict[str, Asset]:
    """Every file of the page. `chapters.js`, which lists the chapters, is made from their names, and their styles are
    appended to play.css."""
    own = dict(assets(PAGE))
    names = sorted(name for name in own if name.startswith("chapters/") and name.endswith(".js"))
    imports = [f'import {{ chapter as chapter{n} }} from "./{name}";\n' for n, name in enumerate(names)]
    listed = f"export const chapters = [{', '.join(f'chapter{n}' for n in range(len(names)))}];\n"
    styles = [own["play.css"].content, *(own[name].content for name in sorted(own) if name.startswith("chapters/") and name.endswith(".css"))]
    own["play.css"] = Asset(b"\n".join(styles), own["play.css"].content_type)
    own["chapters.js"] = Asset(("".join(imports) + listed).encode(), "text/javascript; charset=utf-8")
    return own


@cache
def data() -> dict[str, Any]:
    """What the page reads: numbers of chapters by their number, and exercises by theirs."""
    stored = sorted(DATA.glob("*.json")) if DATA.is_dir() else []
    chapters = {str(int(path.name[:2])): json.loads(path.read_text(encoding="utf-8")) for path in stored}
    return {"chapters": chapters, "exercises": {}}


def document() -> str:
    """The whole playground as one HTML file. It needs no network, and only its own script and style may run."""
    own = files()
    style = own["play.css"].content.decode()
    return from_template("play.html", script=script(own, "main.js"), style=style, token="", data=data())


def export(path: str | Path) -> None:
    """Write the playground as one file that works from disk, without Python and without a network."""
    written_files.form_of(path, ("html",))
    written_files.replace(path, document().encode())
