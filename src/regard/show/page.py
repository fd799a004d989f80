"""An AttentionMatrix as one HTML file: no network, no server, and no token that a browser would obey.

The script and the style are known by their hashes, and the page's policy allows nothing else to run or load. Tokens
travel as JSON inside a data block and are drawn as text only.
"""

import base64
import hashlib
import html
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.records import Grid
from regard.show import grids
from regard.show.attention import Pooled, pooled
from regard.show.color import RAMP
from regard.show.tokens import token_label

_ASSETS = Path(__file__).parent / "page_assets"
_CELLS = 1 << 20  # over all heads; 5.6 MB of page
_NOTEBOOK_CELLS = 1 << 17
_NOTEBOOK_PAIRS = 1 << 30  # more take too long for a cell that only names the matrix
_LARGEST_SIDE, _SMALLEST_SIDE = 1024, 16
_FRAME = 640  # pixels
_NO_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def page(matrix: AttentionMatrix, *, how: str = "max", title: str = "", cells: int = _CELLS) -> str:
    """The page: a heatmap with tokens, exact weights under the pointer, and a choice of heads."""
    heads = max(math.prod(matrix.shape[:-2]), 1)
    side = min(max(math.isqrt(cells // heads), _SMALLEST_SIDE), _LARGEST_SIDE)
    data = page_data(matrix, pooled(matrix, side, side, how=how), how, title)
    script, style = _asset("page.js"), _asset("page.css")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
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


def notebook(matrix: AttentionMatrix) -> str:
    """The page in a frame that can do nothing but draw; for a matrix too long to be gone through unasked, its name."""
    pairs = math.prod(matrix.shape)
    if not pairs or pairs > _NOTEBOOK_PAIRS:
        more = "; A.show() and A.save() draw it" if pairs else ""
        return f"<code>{html.escape(repr(matrix))}</code>{more}"
    content = html.escape(page(matrix, cells=_NOTEBOOK_CELLS), quote=True)
    style = f"width:100%;height:{_FRAME}px;border:0"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{content}"></iframe>'


def page_data(matrix: AttentionMatrix, found: Pooled, how: str, title: str) -> dict[str, Any]:
    """What the page's script reads. Weights are float32 in base64, a hidden cell is −∞."""
    rows, columns = found.starts
    hows = ["max"] if found.exact else [how, *({"max", "mean"} - {how})]
    views = [_view(found, each) for each in hows]
    return {
        "title": token_label(title) if title else "",
        "names": list(found.names),
        "sizes": found.sizes,
        "exact": found.exact,
        "rows": [*rows, found.sizes[0]],
        "columns": [*columns, found.sizes[1]],
        "queryTokens": None if matrix.query_tokens is None else [token_label(token) for token in matrix.query_tokens],
        "keyTokens": None if matrix.key_tokens is None else [token_label(token) for token in matrix.key_tokens],
        "views": views,
        "ramp": RAMP,
    }


def _view(found: Pooled, how: str) -> dict[str, Any]:
    values = found.by(how)
    seen = values[found.visible]
    limits = grids.limits(Grid([]), [seen.tolist()])
    cells = np.where(found.visible, values, -np.inf).astype("<f4")
    return {
        "name": "weight" if found.exact else "largest weight" if how == "max" else "mean weight",
        "note": found.note(how),
        "limits": [limits.low, limits.high, limits.power],
        "cells": base64.b64encode(cells.tobytes()).decode("ascii"),
    }


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
