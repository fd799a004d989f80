"""An AttentionMatrix as lines from token to token: queries at the left, keys at the right, the strong weights between.

Weak weights are left out, and the note says which and how much of the whole they are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.number import short
from regard.plot.attention import pooled
from regard.plot.color import SERIES
from regard.plot.tokens import token_label

MOST_TOKENS = 60  # at a side
MOST_HEADS = len(SERIES)
_FEW, _LEAST = 0.1, 0.02  # the threshold for few keys, and the lowest for many


@dataclass(frozen=True)
class Link:
    """One line: from query `query` to key `key`, of head number `head` among those drawn."""

    head: int
    query: int
    key: int
    weight: float


@dataclass(frozen=True)
class Links:
    """Lines between two columns of tokens, weak ones first so that strong ones lie on top."""

    links: Sequence[Link]
    queries: Sequence[str]
    keys: Sequence[str]
    heads: Sequence[str]
    threshold: float
    title: str = ""
    note: str = ""


def links_of(matrix: AttentionMatrix, *, threshold: float | None = None, title: str = "") -> Links:
    """The weights of at least `threshold`; by default that is an even share, 1 / keys, within 0.02 and 0.1."""
    *lead, queries, keys = matrix.shape
    heads = math.prod(lead)
    if max(queries, keys) > MOST_TOKENS:
        raise ValueError(
            f"lines are drawn between up to {MOST_TOKENS} tokens at a side, and there are {queries:,} queries and "
            f'{keys:,} keys; save it with kind="map", or a part: AttentionMatrix.from_weights(A[0, 3, :{MOST_TOKENS}, '
            f":{MOST_TOKENS}])"
        )
    if heads > MOST_HEADS:
        raise ValueError(
            f"lines have a color for each of up to {MOST_HEADS} heads, and there are {heads:,}; choose some, as in "
            f"A[0, :{MOST_HEADS}] or A[0, 3]"
        )
    found = pooled(matrix, max(queries, 1), max(keys, 1))
    threshold = min(max(1 / max(keys, 1), _LEAST), _FEW) if threshold is None else threshold
    drawn = found.visible & (found.max >= threshold) & (found.max > 0)
    links = [
        Link(head, query, key, float(found.max[head, query, key])) for head, query, key in np.argwhere(drawn).tolist()
    ]
    names = [name if name != "[]" else "" for name in found.names]
    return Links(
        sorted(links, key=lambda link: link.weight),
        _labels(matrix.query_tokens, queries),
        _labels(matrix.key_tokens, keys),
        names,
        threshold,
        title,
        _note(found.max, found.visible, drawn, threshold),
    )


def _labels(tokens: Sequence[str] | None, count: int) -> list[str]:
    return [str(n) for n in range(count)] if tokens is None else [token_label(token) for token in tokens]


def _note(
    weights: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]",
    seen: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]",
    drawn: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]",
    threshold: float,
) -> str:
    whole, kept = float(weights[seen].sum()), float(weights[drawn].sum())
    share = f", {100 * kept / whole:.0f}% of the weight" if whole > 0 else ""
    return (
        f"{int(drawn.sum()):,} of {int(seen.sum()):,} visible pairs{share}; weights below {short(threshold)} are left "
        "out. Thicker and darker: more weight"
    )
