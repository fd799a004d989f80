"""The layers of a capture that a head table reads, with their tokens and what their queries can see."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.cached import cached_property
from regard.engine.request import Request
from regard.inspection.capture.result import Capture
from regard.inspection.heads.tokens import KeyTokens, TokenRows, key_tokens
from regard.inspection.heads.visibility import Visibility, alike, plain, visibility_of
from regard.inspection.matrix import AttentionMatrix
from regard.inspection.matrix.gradients import mass
from regard.inspection.matrix.source import Computed
from regard.spec.masks import Full
from regard.spec.normalizers import Softmax

Name = int | str
ELSEWHERE = ("cross", "encoder_attn", "encdecattention", "enc_dec", "multihead_attn")  # names of cross-attention layers


@dataclass(frozen=True, eq=False)
class HeadLayer:
    """A captured layer, and what its queries can see. `within`: queries and keys are of one text. `heads` are the
    numbers of its heads in the model, `shown` those that the table shows."""

    number: int
    name: str
    source: Computed
    visibility: Visibility
    within: bool
    heads: tuple[int, ...]
    shown: tuple[int, ...]

    @cached_property
    def sink(self) -> Tensor | None:
        """The share of the learned sink, (batch, head, query)."""
        request = self.source.request
        if not isinstance(request.normalizer, Softmax) or request.sink is None:
            return None
        known = self.source.known()
        logit = request.sink.double().expand(request.plane.kv_heads, request.plane.group, 1).flatten(0, 1)
        return (logit - (known.state.double() + known.rest.double())).exp().cpu()

    @cached_property
    def mean(self) -> Tensor:
        """The mean weight of each query over its visible keys, (batch, head, query)."""
        keys, plane = self.visibility.keys, self.source.request.plane
        size = (plane.batch, plane.heads, plane.queries)
        total = torch.ones(size, dtype=torch.float64, device="cpu")
        if self.sink is not None:
            total = mass(self.source, Full()).view(size).double().cpu()
        return torch.where(keys > 0, total / keys.clamp(min=1), 0.0)

    def noise(self, rows: slice) -> Tensor:
        """Rounding error of products in these rows, where uniform heads should be 0 once centered: (batch, head)."""
        even = self.mean[..., rows].square() * self.visibility.keys[..., rows]
        return (64 * torch.finfo(self.source.dtype).eps) ** 2 * even.sum(-1)


class LayerReader:
    """Reads layers. Layers with the same visible pairs share what is computed about these."""

    def __init__(
        self,
        capture: Capture,
        chosen: Sequence[int],
        wanted: Collection[str],
        *,
        ids: Any = None,
        tokens: TokenRows | None = None,
        queries: Any = None,
        cross: Iterable[Name] | None = None,
    ) -> None:
        self.capture, self.wanted = capture, wanted
        self.given = key_tokens(ids, tokens)
        self.labeled = tokens is not None
        self.queries = None if queries is None else _bools(queries)
        self.cross = None if cross is None else set(layer_indices(capture, cross))
        self.cache: list[tuple[Request, KeyTokens, bool, Visibility]] = []
        self._check([capture[number].shape for number in chosen])

    def layer(self, number: int) -> HeadLayer:
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
        return HeadLayer(number, name, source, self._visibility(request, words, within), within, heads, shown)

    def _check(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Refuse arguments that fit no layer."""
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

    def _words(self, matrix: AttentionMatrix, request: Request, within: bool) -> KeyTokens:
        """The given tokens if they fit these keys, else the labels. They do not fit another text of the same length."""
        plane, own = request.plane, key_tokens(None, matrix.key_tokens)
        given = self.given.ids if self.given.ids is not None else self.given.punctuation
        if given is None or not _fits(given, plane.batch, plane.keys) or (not within and plane.queries == plane.keys):
            return own
        return self.given if self.labeled else KeyTokens(given, own.punctuation)

    def _visibility(self, request: Request, words: KeyTokens, within: bool) -> Visibility:
        for other, others, same_text, visibility in self.cache:
            if within == same_text and alike(request, other) and words == others:
                return visibility
        plane = request.plane
        queries = self.queries if _fits(self.queries, plane.batch, plane.queries) else None
        new = visibility_of(request, words, within, self.wanted, queries)
        self.cache.append((request, words, within, new))
        return new


def _fits(rows: Tensor | None, batch: int, count: int) -> bool:
    return rows is not None and rows.shape[-1] == count and len(rows) in (1, batch)


def layer_indices(capture: Capture, layers: Iterable[Name] | Name | slice | None) -> list[int]:
    """Indices of layers given by number, name, several of them or None for all; refused layers only if named."""
    names = capture.layers
    if layers is None or isinstance(layers, slice):
        chosen = range(len(names))[slice(None) if layers is None else layers]
        return [number for number in chosen if names[number] not in capture.refused]
    if isinstance(layers, int | str):
        layers = (layers,)
    indices = []
    for each in layers:
        if isinstance(each, str):
            if each not in names:
                raise KeyError(f"no layer {each!r}; there are {', '.join(names)}")
            indices.append(names.index(each))
        elif isinstance(each, bool) or not isinstance(each, int):
            raise TypeError(f"a layer is a number or a name, got {type(each).__name__}")
        elif not -len(names) <= each < len(names):
            raise IndexError(f"layer {each} of {len(names)}")
        else:
            indices.append(each % len(names))
    return indices


def _bools(queries: Any) -> Tensor:
    counted = queries if isinstance(queries, Tensor) else torch.as_tensor(np.asarray(queries), device="cpu")
    if counted.ndim not in (1, 2) or counted.is_floating_point() or not bool(((counted == 0) | (counted == 1)).all()):
        raise TypeError(
            "queries must be True where a query counts, (query,) or (batch, query), got "
            f"{str(counted.dtype).removeprefix('torch.')} of shape {tuple(counted.shape)}"
        )
    counted = counted.detach().cpu().bool()
    return counted if counted.ndim == 2 else counted.unsqueeze(0)
