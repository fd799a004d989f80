"""One HTML file that needs no network and obeys no token: its script and style are known by their hashes, and the
page's policy allows nothing else to run or load. Tokens travel as JSON inside a data block and are drawn as text only.
"""

import base64
import hashlib
import html
import json
from functools import cache
from pathlib import Path
from typing import Any

from regard.plot.pooling import token_label

_ASSETS = Path(__file__).parent / "page_assets"
_SCRIPTS = ("layers.js", "colors.js", "parts.js", "heads.js", "map.js", "pointer.js")
_NO_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})
_FRAME = 640  # pixels


def document(data: dict[str, Any], title: str) -> str:
    """The page that shows these data."""
    script, style = _script(), _asset("page.css")
    policy = (
        f"default-src 'none'; script-src '{hashed(script)}'; style-src '{hashed(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    name = html.escape(token_label(title) if title else "Attention")
    block = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(_NO_MARKUP)
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f'<script type="application/json" id="data">{block}</script>\n<script>{script}</script>\n</body>\n</html>\n'
    )


def framed(content: str) -> str:
    """The page in a frame that can do nothing but draw, for a notebook."""
    style = f"width:100%;height:{_FRAME}px;border:0"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{html.escape(content, quote=True)}"></iframe>'


@cache
def _script() -> str:
    """One function of all parts: they share their names with each other and with nobody else."""
    return '"use strict";\n(() => {\n' + "\n".join(map(_asset, _SCRIPTS)) + "})();\n"


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def hashed(text: str) -> str:
    """A script or style as a page's policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
