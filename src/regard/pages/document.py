"""HTML from templates, with every inserted text escaped.

A saved document is one file that needs no network. Its policy allows only its own script and style, by their hashes.
Tokens travel as JSON inside a data block and are drawn as text only.
"""

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.pages.assets import assets, script

if TYPE_CHECKING:
    from jinja2 import Environment

_FOLDER = Path(__file__).parent
_NO_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"content_hash": content_hash, "json_block": _json_block}
    return environment


def from_template(name: str, **values: Any) -> str:
    """The template of this name with the values inserted."""
    return _environment().get_template(name).render(**values)


def attention_document(data: dict[str, Any], title: str) -> str:
    """The document that shows these data, as `plot.page` describes them."""
    files = assets(_FOLDER / "static")
    style = files["page.css"].content.decode()
    return from_template("attention.html", title=title, data=data, script=_script(), style=style)


def framed(content: str) -> str:
    """The document in a frame that can draw and save its drawing, and nothing else, for a notebook."""
    return from_template("frame.html", content=content)


@cache
def _script() -> str:
    return script(assets(_FOLDER / "static"), "main.js")


def content_hash(text: str) -> str:
    """A script or style as a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _json_block(data: dict[str, Any]) -> str:
    """The data as JSON without a character that could end its element."""
    from markupsafe import Markup

    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_NO_MARKUP))
