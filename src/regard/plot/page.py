"""Attention as a page: a matrix, or the layers of a capture, with exact weights under the pointer.

The page reads one dictionary: `texts`, the distinct lists of tokens with the words they make up, and `layers`, each
with its heads, its cells and the numbers of its texts. A matrix is a single layer. What is too long for a page is
pooled, and the page says so.
"""

import base64
import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.tokens import token_label, token_labels
from regard.pages.document import attention_document, framed
from regard.plot import grids
from regard.plot.overview import MOST_MAPS, Layers, matrices
from regard.plot.pooling import PooledHeads, pool
from regard.plot.theme import RAMP
from regard.plot.words import words_of

CELLS = 1 << 20  # over all heads; 5.6 MB of page
NOTEBOOK_CELLS = 1 << 17
NOTEBOOK_PAIRS = 1 << 30  # more take too long for a cell that only names the matrix
_LARGEST_SIDE, _SMALLEST_SIDE = 1024, 16
Tokens = Sequence[str] | None


@dataclass(frozen=True, eq=False)
class PageLayer:
    """A layer of the page: what it is called, its heads in cells or the reason why there are none, and its tokens."""

    name: str
    heads: Sequence[str]
    pooled: PooledHeads | None
    query_tokens: Tokens = None
    key_tokens: Tokens = None
    reason: str = ""


def page(matrix: AttentionMatrix, *, how: str = "max", title: str = "", cells: int = CELLS) -> str:
    """The page of a matrix: a heatmap with tokens, and a choice of heads."""
    side = side_for(math.prod(matrix.shape[:-2]), cells)
    pooled = pool(matrix, side, side, how=how)
    layer = PageLayer("", pooled.names, pooled, matrix.query_tokens, matrix.key_tokens)
    return _document([layer], how, title)


def notebook(matrix: AttentionMatrix) -> str:
    """The page in a frame; for a matrix too long to be gone through unasked, its name."""
    pairs = math.prod(matrix.shape)
    if not pairs or pairs > NOTEBOOK_PAIRS:
        more = "; A.show() and A.save() draw it" if pairs else ""
        return f"<code>{html.escape(repr(matrix))}</code>{more}"
    return framed(page(matrix, cells=NOTEBOOK_CELLS))


def side_for(heads: int, cells: int) -> int:
    """Cells at a side of each of so many heads."""
    return min(max(math.isqrt(cells // max(heads, 1)), _SMALLEST_SIDE), _LARGEST_SIDE)


def _document(layers: Sequence[PageLayer], how: str, title: str) -> str:
    """The page of these layers. Weights are float32 in base64, a hidden cell is −∞."""
    shown = [layer.pooled for layer in layers if layer.pooled is not None]
    hows = ["max"] if all(pooled.exact for pooled in shown) else [how, *({"max", "mean"} - {how})]
    texts: list[tuple[str, ...]] = []
    for layer in layers:
        for tokens in (layer.query_tokens, layer.key_tokens):
            if layer.pooled is not None and tokens is not None and tuple(tokens) not in texts:
                texts.append(tuple(tokens))
    title = token_label(title) if title else ""
    data = {
        "title": title,
        "texts": [_text(tokens) for tokens in texts],
        "views": [_view(shown, each) for each in hows],
        "layers": [_layer(layer, hows, texts) for layer in layers],
        "ramp": RAMP,
    }
    return attention_document(data, title or "Attention")


def _text(tokens: Sequence[str]) -> dict[str, Any]:
    """The tokens, and where each word starts and what it is, if any has several."""
    words = words_of(tokens)
    several = len(words.starts) < len(tokens)
    return {
        "tokens": token_labels(tokens),
        "starts": words.edges(len(tokens)) if several else None,
        "words": [token_label(word) for word in words.texts] if several else None,
    }


def _view(shown: Sequence[PooledHeads], how: str) -> dict[str, Any]:
    """What cells show, and the scale that all heads share."""
    limits = grids.limits([pooled.by(how)[pooled.visible].tolist() for pooled in shown])
    exact = all(pooled.exact for pooled in shown)
    return {
        "name": "weight" if exact else "largest weight" if how == "max" else "mean weight",
        "limits": [limits.low, limits.high, limits.power],
    }


def _layer(layer: PageLayer, hows: Sequence[str], texts: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    pooled = layer.pooled
    if pooled is None:
        return {"name": token_label(layer.name), "heads": [], "refused": token_label(layer.reason or "empty")}
    rows, columns = pooled.starts
    cells = [np.where(pooled.visible, pooled.by(how), -np.inf) for how in hows]
    return {
        "name": token_label(layer.name) if layer.name else "",
        "heads": list(layer.heads),
        "refused": "",
        "exact": pooled.exact,
        "rows": [*rows, pooled.sizes[0]],
        "columns": [*columns, pooled.sizes[1]],
        "queries": None if layer.query_tokens is None else texts.index(tuple(layer.query_tokens)),
        "keys": None if layer.key_tokens is None else texts.index(tuple(layer.key_tokens)),
        "cells": [base64.b64encode(array.astype("<f4").tobytes()).decode("ascii") for array in cells],
        "notes": [pooled.note(how) for how in hows],
    }


def capture_page(capture: Layers, *, how: str = "max", title: str = "", batch: int = 0, cells: int = CELLS) -> str:
    """The page: a picker of layer and head, and the map of the one that is chosen."""
    selected = list(matrices(capture, batch))
    heads = sum(math.prod(matrix.shape[:-2]) for _, _, matrix, _ in selected if matrix is not None)
    if heads > MOST_MAPS:
        raise ValueError(
            f"a page holds at most {MOST_MAPS:,} heads, and this capture has {heads:,}; save its layers one by one, as "
            "in c[3].save(...)"
        )
    side = side_for(heads, cells)
    layers = []
    for number, name, matrix, reason in selected:
        label = f"{number} {name}"
        if matrix is None or not math.prod(matrix.shape):
            layers.append(PageLayer(label, (), None, reason=reason))
            continue
        names = [str(head) for head in capture.numbers(number)]
        pooled = pool(matrix, side, side, how=how)
        layers.append(PageLayer(label, names, pooled, matrix.query_tokens, matrix.key_tokens))
    return _document(layers, how, title)


def capture_notebook(capture: Layers) -> str:
    """The page in a frame; for a capture too long to be gone through unasked, its table."""
    pairs = sum(math.prod(matrix.shape) for _, _, matrix, _ in matrices(capture) if matrix is not None)
    if not pairs or pairs > NOTEBOOK_PAIRS:
        more = "<p>c.show() and c.save(…) draw it</p>" if pairs else ""
        return f"<pre>{html.escape(repr(capture))}</pre>{more}"
    return framed(capture_page(capture, cells=NOTEBOOK_CELLS))
