"""AttentionMatrix: a handle on the (…, query, key) weights, which are never built, and reductions over them."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from regard import arrays, checks
from regard.arrays import Array
from regard.engine.arguments import mask_of, unknown_keywords
from regard.engine.request import Spec, request
from regard.inspection.matrix import gradients
from regard.inspection.matrix.indexing import MOST, Tokens, WeightArray
from regard.inspection.matrix.reductions import HOWS, Distance, Peak, PooledGrid, ReductionCall, TopK, survey
from regard.inspection.matrix.source import Computed, Stored, taken
from regard.spec.masks import Full, Mask
from regard.spec.masks.extent import starts_of
from regard.spec.normalizers import Softmax
from regard.spec.scores import ScaledDot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.engine.ring import Ring
    from regard.inspection.matrix.difference import MatrixDifference
    from regard.inspection.matrix.sharded import ShardedMatrix

DEFAULTS: dict[str, Any] = {
    "score": ScaledDot(),
    "mask": None,
    "bias": None,
    "temperature": 1.0,
    "normalizer": Softmax(),
    "query_start": None,
}


class ViewOptions(TypedDict, total=False):
    """How a matrix is shown and saved.

    `kind`: a heatmap, lines from token to token, or an alignment, which is a map of two texts with the strongest key of
    each query marked. `how`: what a cell of several weights shows. `title`: by default model, layer, head and text.
    `colormap`: one of matplotlib's. `tokens`: a range of them. `hide_special`: leave out tokens such as [CLS], and
    `renormalize`: scale the weights that are left in a row to a sum of 1; the caption says so.
    """

    kind: Literal["heatmap", "lines", "alignment"]
    how: Literal["max", "mean"]
    title: str | None
    colormap: str | None
    tokens: slice | None
    hide_special: bool
    renormalize: bool


@overload
def matrix(
    query: Tensor | Array,
    key: Tensor | Array,
    *,
    query_tokens: Tokens = ...,
    key_tokens: Tokens = ...,
    **spec: Unpack[Spec],
) -> "AttentionMatrix": ...


@overload
def matrix(query: Tensor, key: Tensor, *, engine: "Ring", **spec: Unpack[Spec]) -> "ShardedMatrix": ...


def matrix(
    query: Any,
    key: Any,
    *,
    query_tokens: Tokens = None,
    key_tokens: Tokens = None,
    engine: "Ring | str | None" = None,
    **spec: Unpack[Spec],
) -> "AttentionMatrix | ShardedMatrix":
    """The weights of `attend(query, key, value, **spec)` as a handle, for any value.

    With a `Ring` as the engine, query and key are shards, and the handle has reductions only. NumPy arrays are copied;
    the handle gives tensors, and `np.asarray(A)` an array.

    >>> import torch, regard
    >>> q, k = torch.randn(2, 1, 8, 20_000, 16)
    >>> A = regard.matrix(q, k, mask="causal")
    >>> A.shape
    (1, 8, 20000, 20000)
    >>> A[0, 3, -1, -5:].shape
    torch.Size([5])
    """
    unknown = set(spec) - set(Spec.__annotations__) | ({"engine"} if isinstance(engine, str) else set())
    if unknown:
        names = sorted(set(Spec.__annotations__) - {"dropout"})
        raise unknown_keywords("matrix", sorted(unknown), ("query", "key", *names, "query_tokens", "key_tokens"))
    if "dropout" in spec:
        raise TypeError("matrix takes no dropout: its weights are those before any is dropped")
    if not (isinstance(query, Tensor) and isinstance(key, Tensor)):
        (query, key), _ = arrays.inputs(("query", "key"), (query, key), copy=True)
    for name, tensor in (("query", query), ("key", key)):
        checks.is_tensor(name, tensor)
    options = {**DEFAULTS, **spec}
    if engine is not None and not isinstance(engine, str):
        from regard.inspection.matrix.sharded import ShardedMatrix

        return ShardedMatrix(query, key, engine, options)
    checked = request(query, key, key[..., :0], **options, dropout=0.0, aux=())
    checked.hold_numbers()
    shapes, plane = checked.shapes, checked.plane
    lead = torch.arange(plane.batch * plane.heads, device="cpu")
    lead = lead.view(*shapes.leading, plane.heads) if shapes.leading or shapes.rank > 2 else lead.view(())
    return AttentionMatrix(Computed(checked), lead, query_tokens, key_tokens, query_start=options["query_start"])


class AttentionMatrix(WeightArray):
    """Weights by index, and reductions over all of them; nothing it does holds queries × keys.

    Leading axes give smaller handles, rows and columns numbers: `A[0, 3]` is a handle, `A[0, 3, 10:20, :64]` a tensor.
    Results of reductions have the handle's leading axes and are cached. Only `lse`, `entropy` and `mass` have
    gradients.
    """

    @classmethod
    def from_weights(cls, weights: Any, query_tokens: Tokens = None, key_tokens: Tokens = None) -> "AttentionMatrix":
        """A handle on given weights: axes that end in (query, key), or a sequence of such, one for each layer."""
        if isinstance(weights, list | tuple) and any(layer is None for layer in weights):
            raise ValueError("a layer of the weights is None: the model kept none; call it for eager attention")
        if isinstance(weights, list | tuple) and weights and hasattr(weights[0], "shape") and weights[0].ndim > 1:
            layers = [_array(layer) for layer in weights]
            if len({layer.shape for layer in layers}) > 1:
                shapes = ", ".join(str(tuple(layer.shape)) for layer in layers)
                raise ValueError(f"all layers must have one shape, got {shapes}; wrap each layer on its own")
            tensor = torch.stack(layers)
        else:
            tensor = _array(weights)
        checks.is_tensor("weights", tensor)
        if tensor.ndim < 2:
            raise ValueError(f"weights must end in (query, key), got shape {tuple(tensor.shape)}")
        lead = torch.arange(tensor.shape[:-2].numel(), device="cpu").view(tensor.shape[:-2])
        return cls(Stored(tensor), lead, query_tokens, key_tokens)

    def __sub__(self, other: object) -> "MatrixDifference":
        """The signed difference from another matrix of the same shape, as a handle."""
        from regard.inspection.matrix.difference import MatrixDifference

        return MatrixDifference(self, other) if isinstance(other, AttentionMatrix) else NotImplemented

    def lse(self) -> Tensor:
        """log Σ e^x of each row, the sink included; differentiable."""
        source = self._computed("lse")
        if not source.softmax:
            raise ValueError(f"lse belongs to softmax, the normalizer is {source.request.normalizer!r}")
        if gradients.needed(source.request):
            return self._of(gradients.row_statistic(source.request, "lse"))
        return self._of(source.known().state.flatten(0, 1))

    def entropy(self) -> Tensor:
        """−Σ w·log w of each row, in nats; differentiable."""
        if isinstance(self._source, Computed) and gradients.needed(self._source.request):
            return self._of(gradients.row_statistic(self._source.request, "entropy"))
        if isinstance(self._source, Stored) and self._source.weights.requires_grad:
            weights = self._source.weights
            return self._of(-(weights * torch.where(weights > 0, weights, 1.0).log()).sum(-1))
        return self._tensor("entropy")

    def mass(self, mask: Mask | Tensor | Array | str) -> Tensor:
        """The share of each row's weight that lies on a mask; differentiable.

        A mask with axes of its own is one for the whole matrix, of which this handle may be a part.
        """
        if isinstance(self._source, Stored):
            return self._of(gradients.stored_mass(self._source, mask))
        whole = self._whole.source
        assert isinstance(whole, Computed)
        visible = mask_of(mask, whole.request.shapes)
        if visible.positional_for(whole.queries):
            self._positions(visible)
        if visible.same_for_all:
            return self._of(gradients.mass(self._computed("mass"), visible))
        return taken(gradients.mass(whole, visible), self._lead)

    def peak(self) -> Peak:
        """The largest weight of each row and its key (the first of equals)."""
        peak: Peak = self._reduced("peak")
        return peak

    def topk(self, k: int) -> TopK:
        """The k largest weights of each row, largest first, and their keys; 0 and −1 past the last visible key."""
        self._has_room(f"topk({checks.whole('k', k, 1)})", self._source.queries * k)
        largest: TopK = self._reduced("topk", k)
        return largest

    def received(self) -> Tensor:
        """Σ over queries of the weights, (…, key)."""
        return self._tensor("received")

    def distance(self) -> Distance:
        """Mean and spread of |i − j| of each row."""
        if isinstance(self._source, Computed):
            self._positions(Full())
        distance: Distance = self._reduced("distance")
        return distance

    def rowsum(self) -> Tensor:
        """Σ over keys of the weights as they are computed again: 1, or 1 − e^(sink − lse), or 0 of an empty row."""
        return self._tensor("rowsum")

    def pool(self, rows: int, cols: int, how: Literal["mean", "max", "sum"] = "mean") -> Tensor:
        """A grid of rows × cols cells over all pairs; only visible pairs count, and a cell without any is 0.

        Cell (a, b) holds queries a·n // rows … (a+1)·n // rows − 1, and keys likewise. Where more cells are asked for
        than there are queries or keys, cells repeat.
        """
        _known_how(how)
        rows, cols = checks.whole("rows", rows, 1), checks.whole("cols", cols, 1)
        return self._pooled(rows, cols, repeat=True).by(how).to(self.dtype)

    def pyramid(self, rows: int, cols: int, how: Literal["mean", "max", "sum"] = "mean") -> list[Tensor]:
        """The grid of `pool`, then two by two cells in one, down to a single cell; one pass over the pairs.

        It starts no larger than the matrix: cells do not repeat.
        """
        _known_how(how)
        rows, cols = checks.whole("rows", rows, 1), checks.whole("cols", cols, 1)
        grids = [self._pooled(rows, cols)]
        while grids[-1].sum.shape[-2:] != (1, 1):
            grids.append(grids[-1].halved())
        return [grid.by(how).to(self.dtype) for grid in grids]

    def similarity(self, centered: bool = False) -> Tensor:
        """The cosine between the weights of any two heads, (…, head, head).

        `centered`: each row less its mean over visible keys, so that only differences from uniform weights count.
        """
        if self._lead.ndim == 0:
            raise ValueError("similarity compares heads; this handle is a single one")
        rows = self._lead // self._whole.source.heads
        alike = bool((rows == rows[..., :1]).all())  # all in one batch row; else any two maps are compared
        gram, maps = self._root("gram", centered, alike)
        heads = gram.shape[-1]
        cosines = _cosine(gram.view(-1, heads, heads))
        row, head = maps.to(self.device) // heads, maps.to(self.device) % heads
        return cosines[row.unsqueeze(-1), head.unsqueeze(-1), head.unsqueeze(-2)].to(self.dtype)

    def times(self, rows: Tensor) -> Tensor:
        """`rows` (…, row, query) times the weights averaged over heads: (…, row, key)."""
        expected = (*self._lead.shape[:-1], self._source.queries)
        if self._lead.ndim == 0 or (*rows.shape[:-2], *rows.shape[-1:]) != expected:
            raise ValueError(
                f"times wants rows (…, row, query) for a matrix (…, head, query, key), got {tuple(rows.shape)} for "
                f"{self.shape}"
            )
        rows = rows.to(torch.promote_types(rows.dtype, self.dtype))
        maps = self._maps.reshape(-1, self._maps.shape[-1])
        flat = rows.reshape(len(maps), *rows.shape[-2:])
        product = flat.new_zeros((*flat.shape[:2], self._source.keys))
        with torch.no_grad():
            for block in self._source.blocks():
                product[..., block.columns] += flat[..., block.rows] @ block.weights[maps].mean(1).to(flat.dtype)
        return product.view(*rows.shape[:-1], self._source.keys)

    def survey(self, *names: str, rows: int = 1024, cols: int = 1024) -> dict[str, Any]:
        """Several reductions by name in as few passes as possible; "pool" gives a PooledGrid with mean, max and sum.

        >>> import torch, regard
        >>> A = regard.matrix(*torch.randn(2, 1, 1, 64, 8), mask="causal")
        >>> sorted(A.survey("entropy", "peak", "received", "pool", rows=8, cols=8))
        ['entropy', 'peak', 'pool', 'received']
        """
        known = ("entropy", "peak", "received", "distance", "rowsum", "pool", "lse")
        for name in names:
            if name not in known:
                raise ValueError(
                    f"survey knows {', '.join(known)}, got {name!r}; topk, mass and similarity have methods"
                )
        rows, cols = checks.whole("rows", rows, 1), checks.whole("cols", cols, 1)
        if "distance" in names and isinstance(self._source, Computed):
            self._positions(Full())
        calls = [ReductionCall(name, (rows, cols) if name == "pool" else ()) for name in names if name != "lse"]
        missing = [call for call in calls if call not in self._whole.results and call not in self._own.results]
        self._own.results.update(survey(self._source, missing))
        grid = self._pooled(rows, cols, repeat=True) if "pool" in names else None
        return {name: grid if name == "pool" else getattr(self, name)() for name in names}

    def show(self, *, color: str = "auto", **view: Unpack[ViewOptions]) -> None:
        """Print a picture that fits the terminal: one head with its tokens, or all heads side by side.

        `color`: as in `regard.plot.render`; the other options are `ViewOptions`.
        """
        from regard.plot.attention import AttentionPicture, print_attention

        print_attention(self, AttentionPicture.of(**view), color=color)

    def save(self, path: str | os.PathLike[str], **view: Unpack[ViewOptions]) -> Path:
        """Write a picture or the numbers in the format the suffix names: png, svg, pdf, html, npz or csv; or,
        with safetensors, queries, keys and the spec of their weights, which `regard.load` opens.

        The options are `ViewOptions`. Returns the path.
        """
        if str(path).lower().endswith(".safetensors"):
            from regard.inspection.load import save_matrix

            if view:
                raise TypeError(f"a safetensors file takes no {', '.join(view)}: it holds the matrix, not a picture")
            save_matrix(self, path)
            return Path(path)
        from regard.plot.attention import AttentionPicture, save_attention

        save_attention(self, path, AttentionPicture.of(**view))
        return Path(path)

    def figure(self, **view: Unpack[ViewOptions]) -> "Figure":
        """The picture that `save` writes as a matplotlib figure, for a logger or a page of one's own.

        It belongs to no pyplot window, so there is nothing to close.
        """
        from regard.plot.attention import AttentionPicture, figure_of
        from regard.plot.figure import finished

        return finished(figure_of(self, AttentionPicture.of(**view)))

    def _repr_html_(self) -> str:
        from regard.plot.page import notebook

        return notebook(self)

    def _positions(self, mask: Mask) -> None:
        """Refuse what depends on positions if the position of the first query is ambiguous."""
        whole = self._whole.source
        assert isinstance(whole, Computed)
        batch, visible = whole.request.shapes.batch, whole.request.mask & mask
        starts_of(self._query_start, whole.queries, whole.keys, batch, visible, True)

    def _pooled(self, rows: int, cols: int, *, repeat: bool = False) -> PooledGrid:
        """No larger than the matrix; or of just this size, with cells repeated if it is larger."""
        if repeat:
            self._has_room(f"a grid of {rows} × {cols} cells", rows * cols)
        if self._source.queries == 0 or self._source.keys == 0:
            raise ValueError(f"a matrix of shape {self.shape} has no cells to pool")
        grid: PooledGrid = self._reduced("pool", rows, cols)
        return grid.stretched(rows, cols) if repeat else grid

    def _has_room(self, what: str, numbers: int) -> None:
        """Refuse a result of so many numbers for each map that no machine holds it."""
        count = self._maps.numel() * numbers
        if count > MOST:
            raise ValueError(
                f"{what} would hold {checks.written(count)} numbers, more than 2**40; the matrix has "
                f"{self._source.queries:,} queries and {self._source.keys:,} keys, call for no more than these"
            )

    def _computed(self, what: str) -> Computed:
        if isinstance(self._source, Computed):
            return self._source
        raise ValueError(f"{what} needs queries and keys; these weights were given as they are")

    def _root(self, name: str, *arguments: Any) -> tuple[Any, Tensor]:
        """The result of a reduction for all maps of a source, and this handle's maps among them."""
        call = ReductionCall(name, arguments)
        if call in self._whole.results:
            return self._whole.results[call], self._lead
        if call not in self._own.results:
            self._own.results.update(survey(self._source, [call]))
        return self._own.results[call], self._maps

    def _reduced(self, name: str, *arguments: Any) -> Any:
        result, maps = self._root(name, *arguments)
        return type(result)(*(taken(part, maps) for part in result))

    def _tensor(self, name: str) -> Tensor:
        return taken(*self._root(name))

    def _of(self, tensor: Tensor) -> Tensor:
        """(map, …) of the handle's source to its leading axes."""
        return taken(tensor, self._maps)


def _known_how(how: str) -> None:
    if how not in HOWS:
        raise ValueError(f"how must be one of {', '.join(HOWS)}, got {how!r}")


def _cosine(gram: Tensor) -> Tensor:
    size = gram.diagonal(dim1=-2, dim2=-1).sqrt()
    product = size.unsqueeze(-1) * size.unsqueeze(-2)
    return torch.where(product == 0, 0.0, gram / torch.where(product == 0, 1.0, product)).clamp(-1.0, 1.0)


def _array(weights: Any) -> Tensor:
    tensor = arrays.tensor_of("weights", weights)
    if not isinstance(tensor, Tensor):
        tensor = torch.as_tensor(np.asarray(tensor), device="cpu")
    return tensor if tensor.is_floating_point() else tensor.to(torch.promote_types(tensor.dtype, torch.float32))
