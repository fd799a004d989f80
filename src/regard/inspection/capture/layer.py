"""CapturedLayer: queries, keys and the spec of their weights, or weights; its kind; its keys as patches or tokens."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from regard.cached import cached_property
from regard.engine.request import Spec
from regard.inspection.hooks.call import sampled_rows
from regard.inspection.matrix import AttentionMatrix, matrix
from regard.inspection.matrix.source import Computed
from regard.inspection.tokens import TokenList, known_vocabulary, listed
from regard.spec.masks import Causal, Full
from regard.spec.normalizers import Softmax
from regard.spec.scores import Dot, ScaledDot


class PatchGrid(NamedTuple):
    """Keys that are patches of an image: `special` tokens first, then `rows` × `columns` patches, row by row."""

    rows: int
    columns: int
    special: int

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each key: [CLS] and the numbers of further special tokens, then "row,column"."""
        special = [f"[{number}]" if number else "[CLS]" for number in range(self.special)]
        return (*special, *(f"{row},{column}" for row in range(self.rows) for column in range(self.columns)))


@dataclass(frozen=True)
class RefusedLayer:
    """A layer whose weights cannot be computed again, and why."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class CapturedLayer:
    """query: (batch, head, query, width), key: (batch, kv head, key, width), as the score takes them; both without a
    width if `weights`, (batch, head, query, key), are stored instead.

    `heads` are the numbers of the heads in the model, which has `total`; `shown` are their indices among the stored
    heads, if more are stored. `rounded` is the largest measured change of a weight by rounding what is stored; None if
    it was not rounded. `known_kind` and `checked` are the kind and the result of the self-check, if they were computed
    before. `stays`: whether its keys did not change while a model generated; None if there was one call.
    `number`: which layer of the model it is, if some were selected.
    """

    name: str
    mechanism: str
    query: Tensor
    key: Tensor
    spec: Spec
    heads: tuple[int, ...]
    total: int
    shown: tuple[int, ...] | None = None
    known_kind: str | None = None
    grid: PatchGrid | None = None
    rounded: float | None = None
    checked: float | None = None
    stays: bool | None = None
    weights: Tensor | None = None
    number: int | None = None

    @property
    def queries(self) -> int:
        """Number of queries."""
        return self.query.shape[-2]

    @property
    def keys(self) -> int:
        """Number of keys."""
        return self.key.shape[-2]

    @cached_property
    def matrix(self) -> AttentionMatrix:
        """The weights, (batch, head, query, key)."""
        if self.weights is not None:
            return AttentionMatrix.from_weights(self.weights)
        whole = matrix(self.query, self.key, **self.spec)
        part: AttentionMatrix = whole if self.shown is None else whole[..., list(self.shown), :, :]
        return part

    @cached_property
    def off(self) -> float:
        """The self-check: the largest error of the sum of a row's weights, over sampled rows. The sum is 1, with a sink
        1 less its share, and 0 in a row that sees nothing."""
        if self.checked is not None:
            return self.checked
        rows = sampled_rows(self.queries)
        sums = self.matrix[(..., rows, slice(None))].sum(-1)
        normalizer: Any = self.spec.get("normalizer")
        expected = torch.ones_like(sums)
        if isinstance(normalizer, Softmax) and normalizer.sink is not None:
            sink = torch.as_tensor(normalizer.sink, dtype=sums.dtype, device=sums.device).reshape(-1, 1)
            sink = sink if self.shown is None or len(sink) == 1 else sink[list(self.shown)]
            expected = 1.0 - (sink - self.matrix.lse()[..., rows]).exp()
        error = torch.where(sums == 0.0, 0.0, (sums - expected).abs())
        return float(error.max()) if error.numel() else 0.0

    @cached_property
    def kind(self) -> str:
        """encoder, decoder or cross, by the path of the module; where that does not say, by what is visible. Attention
        over channels is of no such kind."""
        if self.known_kind is not None:
            return self.known_kind
        names = [re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in self.name.split("#")[0].split(".")]
        if any(CROSS.search(name) for name in names):
            return "cross"
        itself = any(SELF.search(name) for name in names) or self.stays is False or self.queries == self.keys
        if self.stays or (not itself and not self._looks_back):
            return "cross"
        for name in names:
            if DECODER.search(name):
                return "decoder"
            if ENCODER.search(name):
                return "encoder"
        return "decoder" if self._looks_back else "encoder"

    @property
    def _looks_back(self) -> bool:
        """Whether queries at the end of the keys do not see later keys. A single query does not tell."""
        first, weights = self.keys - self.queries, self.matrix
        if self.queries < 2 or first < 0:
            return False
        source = weights._source
        if isinstance(source, Computed):
            request = source.request
            if isinstance(request.mask, Causal):
                return bool((request.plane.starts == first).all())
            plain = type(request.score) in (Dot, ScaledDot) and isinstance(request.normalizer, Softmax)
            if plain and isinstance(request.mask, Full) and request.bias is None:  # nothing can hide a pair
                return False
        rows = sorted({self.queries // 2, self.queries - 2})
        return not any(bool((weights[(..., row, slice(first + row + 1, self.keys))] != 0).any()) for row in rows)


CHANNELS = "channels"
KINDS = ("encoder", "decoder", "cross", CHANNELS)
# of the modules on a layer's path, as they are called in torch, transformers and here
CROSS = re.compile(r"cross|encdec|enc_dec|encoder_att|^multihead_attn$|^src_att|^enc_att|^memory")
SELF = re.compile(r"^self|self_?att|^self$")
ENCODER, DECODER = re.compile(r"^enc(oder)?s?(_|$)|_encoder$"), re.compile(r"^dec(oder)?s?(_|$)|_decoder$")


MOST_SPECIAL = 16  # special tokens before the patches


class PatchEmbedding(NamedTuple):
    """A convolution that reads each patch once: its path, the sizes of a patch, and of the image if that is known."""

    path: str
    patch: tuple[int, int]
    image: tuple[int, int] | None

    def grid(self, keys: int, image: tuple[int, int] | None) -> PatchGrid | None:
        """The grid of so many keys, if they are one for each patch and a few special tokens before."""
        image = image or self.image
        if image is None:
            return None
        rows, columns = image[0] // self.patch[0], image[1] // self.patch[1]
        special = keys - rows * columns
        return PatchGrid(rows, columns, special) if rows and columns and 0 <= special <= MOST_SPECIAL else None


def patch_embeddings(model: nn.Module) -> list[PatchEmbedding]:
    """All of a model: convolutions whose stride is the size of their kernel."""
    embeddings = []
    modules = dict(model.named_modules())
    for path, module in modules.items():
        if isinstance(module, nn.Conv2d) and module.stride == module.kernel_size and min(module.kernel_size) > 1:
            above = [modules[".".join(path.split(".")[:depth])] for depth in range(path.count("."), 0, -1)]
            images = [image for owner in (*above, model) if (image := _image(owner)) is not None]
            high, wide = module.kernel_size
            embeddings.append(PatchEmbedding(path, (high, wide), images[0] if images else None))
    return embeddings


def patch_grid(
    layer: str, layers: Iterable[str], keys: int, embeddings: list[PatchEmbedding], image: tuple[int, int] | None
) -> PatchGrid | None:
    """The grid of a layer with so many keys: that of the embedding whose nearest ancestor with attention holds it."""
    names = list(layers)
    for each in embeddings:
        parents = each.path.split(".")
        for depth in range(len(parents) - 1, -1, -1):
            above = "".join(f"{parent}." for parent in parents[:depth])
            if any(name.startswith(above) for name in names):
                if layer.startswith(above):
                    return each.grid(keys, image)
                break
    return None


def _image(owner: nn.Module) -> tuple[int, int] | None:
    """Height and width of the images that a module, or its config, names."""
    for source in (owner, getattr(owner, "config", None)):
        for name in ("img_size", "image_size"):
            size = getattr(source, name, None)
            if isinstance(size, int):
                return size, size
            if isinstance(size, tuple | list) and len(size) == 2 and all(isinstance(side, int) for side in size):
                return int(size[0]), int(size[1])
    return None


Row = Sequence[str]
Tokens = Row | Sequence[Row] | Mapping[str, Row | Sequence[Row]]
Rows = tuple[tuple[str, ...], ...]  # one for each batch row, or one for all
SIDES = ("encoder", "decoder")


@dataclass(frozen=True)
class TokenLabels:
    """Tokens of the sequences "encoder" and "decoder", or of "", every layer that has as many."""

    rows: Mapping[str, Rows]

    @classmethod
    def of(cls, tokens: Any) -> "TokenLabels":
        """The argument `tokens`, checked."""
        if tokens is None:
            return cls({})
        if not isinstance(tokens, Mapping):
            return cls({"": _rows("tokens", tokens)})
        unknown = [side for side in tokens if side not in SIDES]
        if unknown or not tokens:
            raise ValueError(
                f"tokens of two sequences have the names 'encoder' and 'decoder', got {list(tokens)}; give one list if "
                "there is one sequence"
            )
        return cls({side: _rows(f"tokens[{side!r}]", listed) for side, listed in tokens.items()})

    @property
    def vocabularies(self) -> dict[str, str]:
        """The kinds of vocabularies that are known, by sequence."""
        kinds = {side: known_vocabulary(rows[0]) for side, rows in self.rows.items()}
        return {side: kind for side, kind in kinds.items() if kind is not None}

    def of_vocabularies(self, kinds: Mapping[str, str]) -> "TokenLabels":
        """The same tokens, of these kinds of vocabularies."""
        return TokenLabels(
            {
                side: tuple(TokenList(row, kinds[side]) for row in rows) if side in kinds else rows
                for side, rows in self.rows.items()
            }
        )

    def check(self, captured: Iterable[CapturedLayer | RefusedLayer]) -> None:
        """Refuse tokens that fit no layer."""
        layers = [layer for layer in captured if isinstance(layer, CapturedLayer)]
        for side, rows in self.rows.items():
            sides = [each for layer in layers if layer.kind != CHANNELS for each in _sides(layer)]
            sizes = {size for own, size in sides if side in ("", own)}
            name = f"tokens[{side!r}]" if side else "tokens"
            counts = ", ".join(f"{size:,}" for size in sorted(sizes))
            if len(rows[0]) not in sizes:
                has = f"has {len(rows[0]):,} entries"
                raise ValueError(f"{name} {has}, the layers have {counts or 'no'} queries or keys")
            batches = {layer.query.shape[0] for layer in layers}
            if len(rows) not in {1, *batches}:
                listed = ", ".join(map(str, sorted(batches)))
                raise ValueError(
                    f"{name} has {len(rows)} lists, the batch has {listed} rows; give one list, or so many"
                )

    def labeled(self, layer: CapturedLayer) -> AttentionMatrix:
        """The matrix of a layer with its tokens."""
        matrix = layer.matrix
        if not self.rows and layer.grid is None:
            matrix.query_tokens = matrix.key_tokens = None
            return matrix
        query, key = (self._rows(own, size) for own, size in _sides(layer))
        if layer.grid is not None and query is None and key is None:
            key = (layer.grid.labels,)
            query = key if layer.queries == layer.keys else None
        if any(rows is not None and len(rows) > 1 for rows in (query, key)):
            labeled = LabeledMatrix(matrix._source, matrix._lead, query_start=matrix._query_start, whole=matrix._whole)
            labeled.rows = (query, key)
            return labeled.named()
        matrix.query_tokens, matrix.key_tokens = (None if rows is None else rows[0] for rows in (query, key))
        return matrix

    def _rows(self, own: str, size: int) -> Rows | None:
        """The tokens of a sequence, if there are `size`; channels have none."""
        if own == CHANNELS:
            return None
        rows = self.rows.get(own, self.rows.get(""))
        return rows if rows is not None and len(rows[0]) == size else None


class LabeledMatrix(AttentionMatrix):
    """A matrix whose batch rows have tokens of their own; handles of a single row have them."""

    rows: tuple[Rows | None, Rows | None] = (None, None)

    def named(self) -> Self:
        """With the tokens of its batch row, if it is a single one."""
        numbers = (self._lead.reshape(-1) // self._whole.source.heads).unique().tolist()
        for side, rows in zip(("query_tokens", "key_tokens"), self.rows, strict=True):
            one = None if rows is None else rows[0] if len(rows) == 1 else None
            if rows is not None and len(rows) > 1 and len(numbers) == 1:
                one = rows[numbers[0]]
            setattr(self, side, one)
        return self

    def _part(self, lead: Tensor) -> Self:
        part = super()._part(lead)
        part.rows = self.rows
        return part.named()


def _sides(layer: CapturedLayer) -> tuple[tuple[str, int], tuple[str, int]]:
    """The sequences of queries and of keys, with their lengths."""
    query = "decoder" if layer.kind == "cross" else layer.kind
    key = "encoder" if layer.kind == "cross" else layer.kind
    return (query, layer.queries), (key, layer.keys)


def _rows(name: str, tokens: Any) -> Rows:
    if isinstance(tokens, str):
        raise TypeError(f"{name} must be a sequence of strings, got one string; split it first")
    if isinstance(tokens, Tensor) or not isinstance(tokens, Sequence):
        raise TypeError(
            f"{name} must be a sequence of strings, got {type(tokens).__name__}; if the model takes an argument of "
            "this name, write: with capture(model) as c: model(tokens=...)"
        )
    nested = bool(tokens) and all(isinstance(row, list | tuple) for row in tokens)
    rows = tuple(listed(row) for row in tokens) if nested else (listed(tokens),)
    if len({len(row) for row in rows}) > 1:
        sizes = ", ".join(str(len(row)) for row in rows)
        raise ValueError(f"{name} must have lists of one length, padding included, got {sizes}")
    return rows
