"""The weights of an AttentionMatrix as files of numbers: npz, and csv with a line for each visible pair."""

import csv
import io
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from regard.inspection.matrix.difference import MatrixDifference
from regard.inspection.tokens import token_texts
from regard.plot.captions import index_of_head
from regard.plot.pooling import Matrix, pool

MOST_LINES = 1 << 22  # of a csv file


def _number_name(matrix: Matrix, ending: str = "") -> str:
    return f"{'difference' if isinstance(matrix, MatrixDifference) else 'weight'}{ending}"


def as_npz(matrix: Matrix) -> bytes:
    """`weights` or `differences`, and `query_tokens` and `key_tokens`, if any; hidden pairs are 0, as in `dense`."""
    arrays: dict[str, Any] = {_number_name(matrix, "s"): matrix.dense().detach().cpu().numpy()}
    for name in ("query_tokens", "key_tokens"):
        tokens = getattr(matrix, name)
        if tokens is None:
            continue
        arrays[name] = np.array(tokens, dtype=np.str_)
        if tuple(arrays[name].tolist()) != tokens:
            raise ValueError(f"npz cannot hold a token that ends in a NUL character, as one of {name} does; use csv")
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def as_csv(matrix: Matrix) -> bytes:
    """One line for each visible pair: its leading indices, query, key, their tokens, weight."""
    count = math.prod(matrix.shape)
    if count > MOST_LINES:
        raise ValueError(
            f"csv takes a line for each pair, and {count:,} are more than {MOST_LINES:,}; save one head, as in "
            f"{index_of_head(matrix)}, or save as npz"
        )
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(_lines(matrix))
    return text.getvalue().encode("utf-8", "backslashreplace")


def _lines(matrix: Matrix) -> Iterator[list[object]]:
    *lead, queries, keys = matrix.shape
    yield [*(f"axis_{n}" for n in range(len(lead))), "query", "key", "query_token", "key_token", _number_name(matrix)]
    if not math.prod(matrix.shape):
        return
    pooled = pool(matrix, queries, keys)
    query_tokens, key_tokens = (
        [""] * count if tokens is None else token_texts(tokens)
        for tokens, count in ((matrix.query_tokens, queries), (matrix.key_tokens, keys))
    )
    for head, index in enumerate(np.ndindex(*lead)):
        for row, key in np.argwhere(pooled.visible[head]).tolist():
            yield [*index, row, key, query_tokens[row], key_tokens[key], pooled.max[head, row, key]]
