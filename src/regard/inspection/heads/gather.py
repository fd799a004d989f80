"""Gather: the layers of a capture that were asked for, with their tokens and what their queries can see."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from regard.engine.request import Request
from regard.inspection.heads.layer import Layer
from regard.inspection.heads.sight import Sight, sight_of
from regard.inspection.heads.visible import alike, plain
from regard.inspection.heads.words import Text, Words, words_of
from regard.inspection.matrix import AttentionMatrix
from regard.inspection.matrix.source import Computed

Name = int | str
ELSEWHERE = ("cross", "encoder_attn", "encdecattention", "enc_dec", "multihead_attn")  # what models call such layers


class Captured(Protocol):
    """What is needed of a capture."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names."""

    @property
    def refused(self) -> dict[str, str]:
        """Layers that cannot be shown, and why."""

    def __getitem__(self, asked: int) -> AttentionMatrix:
        """The matrix of a layer."""

    def numbers(self, layer: int) -> tuple[int, ...]:
        """The numbers of its heads in the model."""


class Gatherer:
    """Makes layers; those that see the same share what was found out about it."""

    def __init__(
        self,
        capture: Captured,
        chosen: Sequence[int],
        wanted: Collection[str],
        *,
        ids: Any = None,
        tokens: Text | None = None,
        queries: Any = None,
        cross: Iterable[Name] | None = None,
    ) -> None:
        self.capture, self.wanted = capture, wanted
        self.given = words_of(ids, tokens)
        self.labelled = tokens is not None
        self.queries = None if queries is None else _bools(queries)
        self.cross = None if cross is None else set(numbers(capture, cross))
        self.known: list[tuple[Request, Words, bool, Sight]] = []
        self._check([capture[number].shape for number in chosen])

    def layer(self, number: int) -> Layer:
        """One layer."""
        matrix, name = self.capture[number], self.capture.layers[number]
        source = matrix._source
        assert isinstance(source, Computed)
        request = plain(source.request)
        if request is not source.request:
            source = Computed(request)
        within = self._within(number, name, request, matrix)
        words = self._words(matrix, request, within)
        shown, stored = self.capture.numbers(number), request.plane.heads
        heads = shown if len(shown) == stored else tuple(range(stored))  # some layers are stored whole
        return Layer(number, name, source, self._sight(request, words, within), within, heads, shown)

    def _check(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Refuse what fits no layer, before any work."""
        given = [("tokens", "key", -1, self.given.punctuation), ("ids", "key", -1, self.given.ids)]
        for name, what, axis, rows in [*given, ("queries", "query", -2, self.queries)]:
            if rows is None:
                continue
            batches = {torch.Size(shape[:-3]).numel() for shape in shapes if shape[axis] == rows.shape[-1]}
            if not batches:
                sizes = ", ".join(f"{size:,}" for size in sorted({shape[axis] for shape in shapes}))
                raise ValueError(
                    f"{name} must have one entry for each {what} of some layer ({sizes}), got {rows.shape[-1]:,}"
                )
            if len(rows) != 1 and len(rows) not in batches:
                sizes = ", ".join(map(str, sorted(batches)))
                raise ValueError(f"{name} must have one row or one for each batch row ({sizes}), got {len(rows)} rows")

    def _within(self, number: int, name: str, request: Request, matrix: AttentionMatrix) -> bool:
        """Whether queries and keys are of one text."""
        if self.cross is not None:
            return number not in self.cross
        bias, labels = request.bias, (matrix.query_tokens, matrix.key_tokens)
        if request.mask.positional_for(request.plane.queries) or request.score.positional:
            return True
        if bias is not None and bias.positional:
            return True
        if request.plane.queries != request.plane.keys or (None not in labels and labels[0] != labels[1]):
            return False
        return not any(part in name.lower() for part in ELSEWHERE)

    def _words(self, matrix: AttentionMatrix, request: Request, within: bool) -> Words:
        """What was given if it is for these keys, else the labels. It is not for another text of the same length."""
        plane, own = request.plane, words_of(None, matrix.key_tokens)
        given = self.given.ids if self.given.ids is not None else self.given.punctuation
        if given is None or not _fits(given, plane.batch, plane.keys) or (not within and plane.queries == plane.keys):
            return own
        return self.given if self.labelled else Words(given, own.punctuation)

    def _sight(self, request: Request, words: Words, within: bool) -> Sight:
        for other, others, inside, sight in self.known:
            if within == inside and alike(request, other) and _same(words, others):
                return sight
        plane = request.plane
        queries = self.queries if _fits(self.queries, plane.batch, plane.queries) else None
        found = sight_of(request, words, within, self.wanted, queries)
        self.known.append((request, words, within, found))
        return found


def _fits(rows: Tensor | None, batch: int, count: int) -> bool:
    return rows is not None and rows.shape[-1] == count and len(rows) in (1, batch)


def numbers(capture: Captured, asked: Iterable[Name] | Name | slice | None) -> list[int]:
    """Layers by number, by name, several of them or all, as numbers; those that cannot be shown only if named."""
    names = capture.layers
    if asked is None or isinstance(asked, slice):
        chosen = range(len(names))[slice(None) if asked is None else asked]
        return [number for number in chosen if names[number] not in capture.refused]
    if isinstance(asked, int | str):
        asked = (asked,)
    found = []
    for each in asked:
        if isinstance(each, str):
            if each not in names:
                raise KeyError(f"no layer {each!r}; there are {', '.join(names)}")
            found.append(names.index(each))
        elif isinstance(each, bool) or not isinstance(each, int):
            raise TypeError(f"a layer is a number or a name, got {type(each).__name__}")
        elif not -len(names) <= each < len(names):
            raise IndexError(f"layer {each} of {len(names)}")
        else:
            found.append(each % len(names))
    return found


def _same(one: Words, other: Words) -> bool:
    pairs: Sequence[tuple[Tensor | None, Tensor | None]] = (
        (one.ids, other.ids),
        (one.punctuation, other.punctuation),
    )
    return all(a is b or (a is not None and b is not None and torch.equal(a, b)) for a, b in pairs)


def _bools(queries: Any) -> Tensor:
    found = queries if isinstance(queries, Tensor) else torch.as_tensor(np.asarray(queries), device="cpu")
    if found.ndim not in (1, 2) or found.is_floating_point() or not bool(((found == 0) | (found == 1)).all()):
        raise TypeError(
            "queries must be True where a query counts, (query,) or (batch, query), got "
            f"{str(found.dtype).removeprefix('torch.')} of shape {tuple(found.shape)}"
        )
    found = found.detach().cpu().bool()
    return found if found.ndim == 2 else found.unsqueeze(0)
