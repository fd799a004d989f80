"""The head that a page opens on: the one that depends most on what the words are, by a fixed rule."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.inspection.heads.tokens import is_punctuation
from regard.inspection.matrix.products import Products
from regard.inspection.number import short
from regard.inspection.tokens import SPECIAL
from regard.plot.pooling import PooledHeads

_ELSEWHERE = 0.25  # of a head's weight that the words decide, for a page to open on it
Tokens = Sequence[str] | None


@dataclass(frozen=True, eq=False)
class PageLayer:
    """A layer of the page: what it is called, its heads in cells or the reason why there are none, and its tokens.

    `products` are its queries and keys, or why they are not there; `path` is its module, shown as a tooltip.
    """

    name: str
    heads: Sequence[str]
    pooled: PooledHeads | None
    query_tokens: Tokens = None
    key_tokens: Tokens = None
    reason: str = ""
    products: Products | str = ""
    path: str = ""

    @property
    def within(self) -> bool:
        """Whether queries and keys are of one text."""
        assert self.pooled is not None
        return self.query_tokens == self.key_tokens and self.pooled.sizes[0] <= self.pooled.sizes[1]


def first_head(layers: Sequence[PageLayer]) -> tuple[tuple[int, int], str]:
    """The head that the page opens on, and why: the one that depends most on what the words are.

    For each query, the largest weight on another word, less the mean weight that other queries give that word or a
    word at that distance, whichever is larger; then the mean over queries. Keys that are special, punctuation, the
    first, the query itself or its neighbor do not count, nor do special queries. A head that gives all other keys less
    than a quarter of its weight is taken only if there is no other.
    """
    best, place = (False, 0.0), (0, 0)
    for number, layer in enumerate(layers):
        if layer.pooled is None:
            continue
        if layers[place[0]].pooled is None:
            place = (number, 0)
        if layer.pooled.signed:
            continue
        pairs = layer.pooled.visible & _content(layer)
        counted = pairs.any(-1).sum(-1)
        for head in range(len(layer.heads)):
            value = float(_unexpected(layer.pooled.max[head], pairs[head]).sum() / max(counted[head], 1))
            weights = np.nan_to_num(layer.pooled.max[head], nan=0.0, posinf=0.0, neginf=0.0)
            rows = weights[pairs[head].any(-1)]
            enough = bool(weights[pairs[head]].sum() >= _ELSEWHERE * rows.sum() > 0)
            if value > 0 and (enough, value) > best:
                best, place = (enough, value), (number, head)
    if not best[1] or sum(len(layer.heads) for layer in layers) < 2:
        return place, ""
    name = f"head {layers[place[0]].heads[place[1]]}"
    where = f"{layers[place[0]].name}, {name}" if len(layers) > 1 else name
    return place, (
        f"Opened at {where}, which depends most on the words: a query gives one other word {short(best[1])} more "
        "weight, on average, than other queries give that word or a word at that distance."
    )


def _unexpected(weights: "np.ndarray[Any, Any]", pairs: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Of each row, the largest weight less the mean of the other weights in its column or on its diagonal."""
    rows, columns = weights.shape
    weights = np.where(pairs & np.isfinite(weights), weights, 0.0).astype(np.float64)
    diagonal = (np.arange(rows)[:, None] - np.arange(columns) + columns - 1).reshape(-1)
    expected = np.zeros_like(weights)
    for sums, counts in (
        (weights.sum(0), pairs.sum(0)),
        (
            np.bincount(diagonal, weights.reshape(-1), rows + columns)[diagonal].reshape(rows, columns),
            np.bincount(diagonal, pairs.reshape(-1), rows + columns)[diagonal].reshape(rows, columns),
        ),
    ):
        expected = np.maximum(expected, (sums - weights) / np.maximum(counts - 1, 1))
    return np.where(pairs, weights - expected, 0.0).max(-1, initial=0.0)  # type: ignore[no-any-return]


def _content(layer: PageLayer) -> "np.ndarray[Any, Any]":
    """Which pairs of cells (row, column) can be of one word and another; False in the rows of special tokens."""
    pooled = layer.pooled
    assert pooled is not None
    rows, columns = (np.asarray(starts) for starts in pooled.starts)
    pairs = np.ones((len(rows), len(columns)), dtype=bool)
    if layer.within:
        away = (rows + pooled.sizes[1] - pooled.sizes[0])[:, None] - columns
        pairs &= (np.abs(away) > max(pooled.down, pooled.right)) & (columns > 0)
    if pooled.exact and layer.key_tokens is not None:
        pairs &= np.array([not SPECIAL.fullmatch(token) and not is_punctuation(token) for token in layer.key_tokens])
    if pooled.exact and layer.query_tokens is not None:
        pairs &= np.array([not SPECIAL.fullmatch(token) for token in layer.query_tokens])[:, None]
    return pairs
