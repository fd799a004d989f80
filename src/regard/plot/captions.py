"""Captions: what a picture shows in words (model, layer, head, text), and how to see more of it."""

import re
from collections.abc import Sequence
from typing import Protocol

from regard.inspection.matrix.difference import MatrixDifference
from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.text import fit
from regard.inspection.tokens import UNKNOWN, is_special, text_of

UNTITLED = "Attention weights"
_LONGEST_TEXT = 60
_PATCH = re.compile(r"(\d+),(\d+)")  # the label of a patch in its row and column
_NUMBERED = re.compile(r"\[\d+\]")  # of a further special token before the patches
_LISTED = 4  # heads that are named one by one


class NamedLayers(Protocol):
    """The part of a capture that its caption needs."""

    @property
    def name(self) -> str:
        """Of the model."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names."""

    def numbers(self, layer: int, /) -> tuple[int, ...]:
        """The numbers of the heads of a layer."""


def title_of(matrix: AttentionMatrix | MatrixDifference) -> str:
    """Model, layer, head and the beginning of the text; nothing for weights that no model was captured for."""
    if isinstance(matrix, MatrixDifference):
        both = [title_of(side) for side in (matrix.first, matrix.second)]
        return ", less ".join(both) if all(both) else ""
    origin = matrix.origin
    if not origin.model:
        return ""
    places = matrix.places
    heads = sorted({head for _, head in places})
    which = [] if origin.number is None else [f"layer {origin.number}" + (f" ({origin.kind})" if origin.kind else "")]
    rows, batch = {row for row, _ in places}, matrix._whole.source.maps // max(matrix._whole.source.heads, 1)
    which += [f"text {min(rows)}"] if len(rows) == 1 and batch > 1 else []
    if heads:
        which.append(f"head{'s' * (len(heads) > 1)} {', '.join(map(str, heads))}" if len(heads) <= _LISTED else (
            f"{len(heads)} heads"
        ))  # fmt: skip
    return with_text(", ".join([origin.model, *which]), matrix)


def with_text(caption: str, matrix: AttentionMatrix | None) -> str:
    """A caption with the beginning of the text, or of both where queries and keys are of two."""
    if matrix is None:
        return caption
    sides = [None if side is None else quoted(side) for side in (matrix.query_tokens, matrix.key_tokens)]
    texts = list(dict.fromkeys(text for text in sides if text))
    return f"{caption}: {' reads '.join(texts)}" if texts else caption


def quoted(tokens: Sequence[str]) -> str:
    """The beginning of the text in quotation marks; nothing for special tokens alone, and the grid of image patches."""
    patches = [_PATCH.fullmatch(token) for token in tokens if not is_special(token) and not _NUMBERED.fullmatch(token)]
    if patches and (last := patches[-1]) is not None and all(patches):
        return f"{int(last[1]) + 1} × {int(last[2]) + 1} patches of an image"
    text = fit(text_of(tokens, _LONGEST_TEXT * 4), _LONGEST_TEXT)
    return f"“{text}”" if text else ""


def capture_title(capture: NamedLayers, shown: Sequence[int], first: AttentionMatrix | None) -> str:
    """Model, number of layers and heads, and the beginning of the text; `first` is the first layer of `shown`."""
    if not capture.name:
        return ""
    counts = sorted({len(capture.numbers(layer)) for layer in shown})
    layers = f"{len(capture.layers)} layer{'s' * (len(capture.layers) != 1)}"
    heads = f" × {counts[0]} heads" if len(counts) == 1 and counts[0] != 1 else ""
    return with_text(f"{capture.name}, {layers}{heads}", first)


def remark_of(matrix: AttentionMatrix | MatrixDifference) -> str:
    """What a caption adds: the part of a text that is shown, and that a tokenizer did not know a word."""
    tokens = {*(matrix.query_tokens or ()), *(matrix.key_tokens or ())}
    unknown = next((token for token in UNKNOWN if token in tokens), None)
    said = [] if unknown is None else [f"{unknown}: text that the tokenizer does not know"]
    return "; ".join([each for each in (matrix.origin.remark,) if each] + said)


def head_hint(matrix: AttentionMatrix | MatrixDifference, command: bool) -> str:
    """How to see the first of several heads with its tokens: an option of the command line, or Python."""
    if command:
        return f"Add --head {matrix.places[0][1]} to see one head with its tokens."
    return f"{_python_index(matrix)}.show() shows one with labels."


def index_of_head(matrix: AttentionMatrix | MatrixDifference) -> str:
    """How the first head of a matrix is chosen, in Python and on the command line."""
    layer, (_, head) = matrix.origin.layer, matrix.places[0]
    option = f"--head {head}" if layer is None else f"--layer {layer} --head {head}"
    return f"{_python_index(matrix)}, or {option}"


def _python_index(matrix: AttentionMatrix | MatrixDifference) -> str:
    row, head = matrix.places[0]
    if isinstance(matrix, MatrixDifference) or matrix.origin.layer is None:
        return f"A[{', '.join('0' for _ in matrix.shape[:-2])}]"
    batch = matrix._whole.source.maps > matrix._whole.source.heads
    return f"c[{matrix.origin.layer}, {head}]" + f"[{row}]" * batch


def layer_hint(capture: NamedLayers, shown: Sequence[int], command: bool) -> str:
    """How to see a layer of a capture, and a head of it."""
    if not shown:
        return ""
    layer = shown[len(shown) // 2]
    head = capture.numbers(layer)[0]
    if command:
        return f"Add --layer {layer} to see a layer, --layer {layer} --head {head} to see one head with its tokens."
    return f"c[{layer}].show() shows a layer, c[{layer}, {head}].show() one head."
