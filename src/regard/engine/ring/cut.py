"""A rectangle of a call as a call of its own: parts of a spec that are stored by row or column are cut, the others
speak of absolute positions and stay as they are."""

from dataclasses import replace

from torch import Tensor

from regard.engine.request import Request
from regard.engine.ring.shards import Span
from regard.spec.biases import Bias
from regard.spec.biases import Dense as DenseBias
from regard.spec.biases.base import Total
from regard.spec.masks import Dense as DenseMask
from regard.spec.masks import Documents, Mask
from regard.spec.masks.base import And, Not, Or
from regard.spec.masks.functions import Indices, RowWhere
from regard.spec.normalizers import Softmax
from regard.spec.plane import Plane

Tensors = tuple[Tensor, Tensor, Tensor]


def rectangle(request: Request, tensors: Tensors, rows: Span, columns: Span, aux: tuple[str, ...] = ()) -> Request:
    """The call of these rows and columns alone, sink and all left out that is counted once; `tensors` are its own."""
    query, key, value = tensors
    bias = None if request.bias is None else cut_bias(request.bias, rows, columns)
    return replace(
        request,
        query=query,
        key=key,
        value=value,
        mask=cut_mask(request.mask, request.plane, rows, columns),
        bias=bias,
        normalizer=Softmax(),
        aux=aux,
        plane=cut_plane(request.plane, rows, columns),
    )


def cut_plane(plane: Plane, rows: Span, columns: Span) -> Plane:
    """The rectangle as a plane of its own."""
    return replace(
        plane,
        queries=rows.length,
        keys=columns.length,
        starts=plane.starts + rows.start,
        key_start=plane.key_start + columns.start,
    )


def cut_mask(mask: Mask, plane: Plane, rows: Span, columns: Span) -> Mask:
    """The mask of a rectangle."""
    match mask:
        case DenseMask():
            return DenseMask(_cut(mask.tensor, rows, columns))
        case Documents(query_ids=Tensor() as ids) if ids.shape[-1] == plane.queries:
            return Documents(mask.key_ids, ids[..., rows.start : rows.stop])
        case RowWhere():
            return RowWhere(_shifted(mask.fn, rows.start, columns.start))
        case And() | Or():
            left, right = (cut_mask(part, plane, rows, columns) for part in (mask.left, mask.right))
            return replace(mask, left=left, right=right)
        case Not():
            return Not(cut_mask(mask.mask, plane, rows, columns))
    return mask


def cut_bias(bias: Bias, rows: Span, columns: Span) -> Bias:
    """The bias of a rectangle."""
    terms = [
        DenseBias(_cut(term.tensor, rows, columns)) if isinstance(term, DenseBias) else term for term in bias.terms()
    ]
    return terms[0] if len(terms) == 1 else Total(tuple(terms))


def _cut(tensor: Tensor, rows: Span, columns: Span) -> Tensor:
    if tensor.shape[-2] != 1:
        tensor = tensor[..., rows.start : rows.stop, :]
    if tensor.shape[-1] != 1:
        tensor = tensor[..., columns.start : columns.stop]
    return tensor


def _shifted(fn: Indices, row: int, column: int) -> Indices:
    return lambda b, h, i, j: fn(b, h, i + row, j + column)
