"""Attention as a page: a matrix, or the layers of a capture, as a map or as lines, with the weights under the pointer.

The page reads one dictionary: `texts`, the distinct lists of tokens with the words they make up, and `layers`, each
with its heads, its cells, its queries and keys, and the numbers of its texts. A matrix is a single layer. What is too
long for a page is pooled, and the page says so.
"""

import base64
import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.inspection.heads.tokens import is_punctuation
from regard.inspection.matrix.difference import MatrixDifference
from regard.inspection.matrix.indexing import Origin
from regard.inspection.matrix.products import NoProductsError, Products, products
from regard.inspection.text import fit
from regard.inspection.tokens import SPECIAL, token_label, token_labels
from regard.pages.document import attention_document, framed
from regard.plot import grids
from regard.plot.first_head import PageLayer, first_head
from regard.plot.overview import MOST_MAPS, Layers, matrices
from regard.plot.pooling import Matrix, PooledHeads, pool
from regard.plot.theme import DIVERGING, HEADS, colors
from regard.plot.words import words_of

_SINGLE = 1 << 17  # numbers that a page holds in float32; more are float16
_LARGEST_SIDE, _SMALLEST_SIDE = 1024, 16
_HALF_LIMIT = 60_000.0  # float16 has no larger numbers
_LONGEST_TITLE = 200
_SEPARATORS = ("[SEP]", "</s>", "<sep>", "<|sep|>")
NOTEBOOK_PAIRS = 1 << 30  # more take too long for a cell that only names the matrix


@dataclass(frozen=True)
class PageLimits:
    """How much a page holds: cells, not pooled and pooled, over all heads, and numbers of queries and keys."""

    exact: int
    pooled: int
    vectors: int

    def side(self, shapes: Sequence[tuple[int, ...]]) -> int:
        """Cells at a side of each head: all, or as many as there is room for."""
        if sum(map(math.prod, shapes)) <= self.exact and max(max(shape[-2:]) for shape in shapes) <= _LARGEST_SIDE:
            return _LARGEST_SIDE
        heads = sum(math.prod(shape[:-2]) for shape in shapes)
        return min(max(math.isqrt(self.pooled // max(heads, 1)), _SMALLEST_SIDE), _LARGEST_SIDE)


FILE = PageLimits(1 << 23, 1 << 20, 1 << 21)  # at most 23, 6 and 6 MB of page
NOTEBOOK = PageLimits(1 << 21, 1 << 17, 1 << 19)


def page(matrix: Matrix, *, how: str = "max", title: str = "", limits: PageLimits = FILE) -> str:
    """The page of a matrix: a heatmap with tokens, lines, and a choice of heads."""
    side = limits.side([matrix.shape])
    pooled = pool(matrix, side, side, how=how)
    own = _products(matrix, pooled, limits.vectors)
    layer = PageLayer("", pooled.names, pooled, matrix.query_tokens, matrix.key_tokens, products=own)
    return _document([layer], how, title)


def notebook(matrix: Matrix) -> str:
    """The page in a frame; for a matrix too long to be gone through unasked, its name."""
    pairs = math.prod(matrix.shape)
    if not pairs or pairs > NOTEBOOK_PAIRS:
        more = "; A.show() and A.save() draw it" if pairs else ""
        return f"<code>{html.escape(repr(matrix))}</code>{more}"
    return framed(page(matrix, limits=NOTEBOOK))


def capture_page(
    capture: Layers, *, how: str = "max", title: str = "", batch: int = 0, limits: PageLimits = FILE
) -> str:
    """The page: an overview to choose layer and head by, and the map or the lines of the one that is chosen."""
    selected = list(matrices(capture, batch))
    shapes = [matrix.shape for _, _, matrix, _ in selected if matrix is not None]
    heads = sum(math.prod(shape[:-2]) for shape in shapes)
    if heads > MOST_MAPS:
        raise ValueError(
            f"a page holds at most {MOST_MAPS:,} heads, and this capture has {heads:,}; save its layers one by one, as "
            "in c[3].save(...)"
        )
    side = limits.side(shapes) if shapes else _LARGEST_SIDE
    vectors = limits.vectors // max(len(shapes), 1)
    layers = []
    for number, name, matrix, reason in selected:
        origin = Origin() if matrix is None else matrix.origin
        label = f"layer {number if origin.number is None else origin.number}" + f" ({origin.kind})" * bool(origin.kind)
        if matrix is None or not math.prod(matrix.shape):
            layers.append(PageLayer(label, (), None, reason=reason, path=name))
            continue
        names = [str(head) for head in capture.numbers(number)]
        pooled = pool(matrix, side, side, how=how)
        own = _products(matrix, pooled, vectors)
        layers.append(PageLayer(label, names, pooled, matrix.query_tokens, matrix.key_tokens, products=own, path=name))
    return _document(layers, how, title, getattr(capture, "name", getattr(capture, "model", "")))


def comparison_page(
    first: Matrix, second: Matrix, difference: Matrix | None, names: tuple[str, str], title: str, limits: PageLimits
) -> str:
    """The page of two matrices, A and B, and of their difference if there is one, which is shown first."""
    shown = {f"A {names[0]}": first, f"B {names[1]}": second}
    if difference is not None:
        shown["A−B difference"] = difference
    side = limits.side([matrix.shape for matrix in shown.values()])
    layers = []
    for name, matrix in shown.items():
        pooled = pool(matrix, side, side)
        heads = [str(head) for head in range(len(pooled.names))]
        own = _products(matrix, pooled, limits.vectors // 2)
        layers.append(PageLayer(name, heads, pooled, matrix.query_tokens, matrix.key_tokens, products=own))
    start = None
    if (last := layers[-1].pooled) is not None and last.signed:  # the head that differs most
        start = (2, int(np.abs(np.nan_to_num(last.mean)).sum((1, 2)).argmax()))
    return _document(layers, "max", title or f"{names[0]} and {names[1]}", start=start)


def capture_notebook(capture: Layers) -> str:
    """The page in a frame; for a capture too long to be gone through unasked, its table."""
    pairs = sum(math.prod(matrix.shape) for _, _, matrix, _ in matrices(capture) if matrix is not None)
    if not pairs or pairs > NOTEBOOK_PAIRS:
        more = "<p>c.show() and c.save(…) draw it</p>" if pairs else ""
        return f"<pre>{html.escape(repr(capture))}</pre>{more}"
    return framed(capture_page(capture, limits=NOTEBOOK))


def _products(matrix: Matrix, pooled: PooledHeads, most: int) -> Products | str:
    """Queries and keys of a layer, or why the page has none."""
    if not pooled.exact:
        return "Queries and keys are left out where cells are pooled: save fewer heads or a part of the text."
    if isinstance(matrix, MatrixDifference):
        return "There is no view of this pair: a difference has no queries and keys of its own."
    try:
        own = products(matrix)
    except NoProductsError as error:
        return f"There is no view of this pair: {error}."
    if own.numbers > most:
        return (
            f"Queries and keys are left out: this layer has {own.numbers:,} numbers, and a page holds {most:,} of a "
            "layer; save one layer or head, as in c[3].save(...)."
        )
    return own


def _document(
    layers: Sequence[PageLayer], how: str, title: str, model: str = "", start: tuple[int, int] | None = None
) -> str:
    """The page of these layers. Weights are floats in base64, a hidden cell is −∞."""
    shown = [layer.pooled for layer in layers if layer.pooled is not None]
    hows = ["max"] if all(pooled.exact for pooled in shown) else [how, *({"max", "mean"} - {how})]
    texts: list[tuple[str, ...]] = []
    for layer in layers:
        for tokens in (layer.query_tokens, layer.key_tokens):
            if layer.pooled is not None and tokens is not None and tuple(tokens) not in texts:
                texts.append(tuple(tokens))
    title = token_label(title) if title else ""
    sentence = fit(" · ".join(filter(None, map(_sentence, texts))), _LONGEST_TITLE)
    start, opened = first_head(layers) if start is None else (start, "")
    numbers = sum(pooled.max.size for pooled in shown) * len(hows)
    vectors = sum(layer.products.numbers for layer in layers if isinstance(layer.products, Products))
    data = {
        "title": title,
        "sentence": sentence,
        "about": _about(layers, model),
        "start": start,
        "opened": opened,
        "texts": [_text(tokens) for tokens in texts],
        "views": [_view(shown, each) for each in hows],
        "layers": [_layer(layer, hows, texts, numbers > _SINGLE, vectors > _SINGLE) for layer in layers],
        "ramp": colors(),
        "diverging": DIVERGING,
        "series": HEADS,
    }
    return attention_document(
        data, title or " · ".join(filter(None, [sentence, token_label(model) if model else ""])) or "Attention"
    )


def _sentence(tokens: Sequence[str]) -> str:
    """The text that tokens make up, for a title: words with spaces between them, without special tokens."""
    text = ""
    for word in words_of(tokens).texts:
        if SPECIAL.fullmatch(word) or not word.strip():
            continue
        closing = is_punctuation(word) and word not in "([{“‘«¿¡"
        text += word if not text or closing or text[-1] in "([{“‘«¿¡" else f" {word}"
        if len(text) > 2 * _LONGEST_TITLE:
            break
    return token_label(text) if text else ""


def _about(layers: Sequence[PageLayer], model: str) -> str:
    """The model and the sizes, in a line."""
    shown = [layer for layer in layers if layer.pooled is not None]
    counts = sorted({len(layer.heads) for layer in shown})
    sizes = sorted({layer.pooled.sizes for layer in shown if layer.pooled is not None})
    heads = "" if not counts else f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    parts = [f"{heads} head{'' if heads == '1' else 's'}"] if heads else []
    if len(layers) > 1 and not any(layer.pooled.signed for layer in shown if layer.pooled is not None):
        parts = [f"{len(layers)} layers × {parts[0]}" if parts else f"{len(layers)} layers"]
    if len(sizes) == 1:
        same = shown[0].within and sizes[0][0] == sizes[0][1]
        parts.append(f"{sizes[0][0]:,} tokens" if same else f"{sizes[0][0]:,} queries × {sizes[0][1]:,} keys")
    return ", ".join(filter(None, [token_label(model) if model else "", *parts]))


def _text(tokens: Sequence[str]) -> dict[str, Any]:
    """The tokens, where each word starts and what it is, if any has several; special tokens, and where the second
    text of a pair starts."""
    words = words_of(tokens)
    several = len(words.starts) < len(tokens)
    return {
        "tokens": token_labels(tokens),
        "starts": words.edges(len(tokens)) if several else None,
        "words": [token_label(word) for word in words.texts] if several else None,
        "special": [number for number, token in enumerate(tokens) if SPECIAL.fullmatch(token)],
        "second": second_text(tokens),
    }


def second_text(tokens: Sequence[str]) -> int | None:
    """Where the second text of a pair starts: after the first separator that has words before and after it.

    >>> second_text(["[CLS]", "a", "[SEP]", "b", "[SEP]"]), second_text(["[CLS]", "a", "[SEP]"])
    (3, None)
    """
    ordinary = [number for number, token in enumerate(tokens) if not SPECIAL.fullmatch(token)]
    for number, token in enumerate(tokens):
        if token in _SEPARATORS and ordinary and ordinary[0] < number < ordinary[-1]:
            return next(word for word in ordinary if word > number)
    return None


def _view(shown: Sequence[PooledHeads], how: str) -> dict[str, Any]:
    """What cells show, and the scale that all heads share; differences have scales of their own."""
    limits = grids.array_limits(pooled.by(how)[pooled.visible] for pooled in shown if not pooled.signed)
    exact = all(pooled.exact for pooled in shown)
    return {
        "name": "weight" if exact else "largest weight" if how == "max" else "mean weight",
        "limits": [limits.low, limits.high, limits.power],
    }


def _layer(
    layer: PageLayer, hows: Sequence[str], texts: Sequence[tuple[str, ...]], half: bool, half_vectors: bool
) -> dict[str, Any]:
    pooled = layer.pooled
    if pooled is None:
        names = {"name": token_label(layer.name), "path": token_label(layer.path)}
        return {**names, "heads": [], "refused": token_label(layer.reason or "empty")}
    rows, columns = pooled.starts
    cells = [np.where(pooled.visible, pooled.by(how), -np.inf) for how in hows]
    half = half and all(_fits_half(array) for array in cells)
    own = layer.products
    return {
        "name": token_label(layer.name) if layer.name else "",
        "path": token_label(layer.path) if layer.path else "",
        "heads": list(layer.heads),
        "refused": "",
        "signed": pooled.signed,
        "exact": pooled.exact,
        "rows": [*rows, pooled.sizes[0]],
        "columns": [*columns, pooled.sizes[1]],
        "queries": None if layer.query_tokens is None else texts.index(tuple(layer.query_tokens)),
        "keys": None if layer.key_tokens is None else texts.index(tuple(layer.key_tokens)),
        "half": half,
        "cells": [_encoded(array, half) for array in cells],
        "notes": [pooled.note(how) for how in hows],
        "vectors": _vectors(own, half_vectors) if isinstance(own, Products) else None,
        "without": own if isinstance(own, str) else "",
    }


def _vectors(own: Products, half: bool) -> dict[str, Any]:
    query, key = own.query.numpy(), own.key.numpy()
    half = half and _fits_half(query) and _fits_half(key)
    return {
        "query": _encoded(query, half),
        "key": _encoded(key, half),
        "lse": None if own.lse is None else _encoded(own.lse.numpy(), False),
        "half": half,
        "width": own.width,
        "kv": own.kv_head,
        "scale": own.scale,
        "names": own.names,
        "then": own.then,
    }


def _fits_half(array: "np.ndarray[Any, Any]") -> bool:
    finite = array[np.isfinite(array)]
    return not finite.size or float(np.abs(finite).max()) < _HALF_LIMIT


def _encoded(array: "np.ndarray[Any, Any]", half: bool) -> str:
    return base64.b64encode(array.astype("<f2" if half else "<f4").tobytes()).decode("ascii")
