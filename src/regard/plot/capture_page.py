"""A capture as a page: every layer and head to choose from. What is too long for it is pooled, and the page says so."""

import html
import math

from regard.plot.attention import pooled
from regard.plot.document import document, framed
from regard.plot.overview import MOST_MAPS, Layers, matrices
from regard.plot.page import CELLS, NOTEBOOK_CELLS, NOTEBOOK_PAIRS, PageLayer, page_data, side_for


def capture_page(capture: Layers, *, how: str = "max", title: str = "", batch: int = 0, cells: int = CELLS) -> str:
    """The page: a picker of layer and head, and the map of the one that is chosen."""
    every = list(matrices(capture, batch))
    heads = sum(math.prod(matrix.shape[:-2]) for _, _, matrix, _ in every if matrix is not None)
    if heads > MOST_MAPS:
        raise ValueError(
            f"a page holds at most {MOST_MAPS:,} heads, and this capture has {heads:,}; save its layers one by one, as "
            "in c[3].save(...)"
        )
    side = side_for(heads, cells)
    layers = []
    for number, name, matrix, reason in every:
        label = f"{number} {name}"
        if matrix is None or not math.prod(matrix.shape):
            layers.append(PageLayer(label, (), None, reason=reason))
            continue
        found = pooled(matrix, side, side, how=how)
        names = [str(head) for head in capture.numbers(number)]
        layers.append(PageLayer(label, names, found, matrix.query_tokens, matrix.key_tokens))
    return document(page_data(layers, how, title), title)


def notebook(capture: Layers) -> str:
    """The page in a frame; for a capture too long to be gone through unasked, its table."""
    pairs = sum(math.prod(matrix.shape) for _, _, matrix, _ in matrices(capture) if matrix is not None)
    if not pairs or pairs > NOTEBOOK_PAIRS:
        more = "<p>c.show() and c.save(…) draw it</p>" if pairs else ""
        return f"<pre>{html.escape(repr(capture))}</pre>{more}"
    return framed(capture_page(capture, cells=NOTEBOOK_CELLS))
