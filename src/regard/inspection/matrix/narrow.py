"""Narrowing: the request of one head or one batch row, where nothing in the spec tells them from others."""

from dataclasses import replace

from torch import Tensor

from regard.engine.request import Request
from regard.spec.masks import Causal, Dilated, Full, Global, Window
from regard.spec.normalizers import Softmax
from regard.spec.scores import Additive, ConcatMLP, Cosine, Dot, General, ScaledDot, Score, SoftCapped

EVEN = (Full, Causal, Window, Dilated, Global)  # masks that are the same for every batch row and head


def narrowed(request: Request, lanes: list[int]) -> Request | None:
    """The request of just these lanes; None if they are no single head, or no batch row, or the spec forbids it."""
    plane = request.plane
    if len(lanes) >= plane.batch * plane.heads or not _same_rows(request):
        return None
    row = lanes[0] // plane.heads
    if lanes == list(range(row * plane.heads, (row + 1) * plane.heads)):
        heads = (slice(None), slice(None))
    elif len(lanes) == 1 and _same_heads(request):
        kv, own = divmod(lanes[0] % plane.heads, plane.group)
        heads = (slice(kv, kv + 1), slice(own, own + 1))
    else:
        return None
    query = request.query[row : row + 1, heads[0], heads[1]]
    key, value = (tensor[row : row + 1, heads[0]] for tensor in (request.key, request.value))
    starts = plane.starts if plane.starts.numel() == 1 else plane.starts[row : row + 1]
    kv_heads, group = query.shape[1:3]
    return replace(
        request,
        query=query,
        key=key,
        value=value,
        plane=replace(plane, batch=1, kv_heads=kv_heads, group=group, starts=starts),
        shapes=replace(request.shapes, leading=(1,), kv_heads=kv_heads, group=group, rank=4),
    )


def _same_rows(request: Request) -> bool:
    """Whether all batch rows have one mask and one bias, and no function could tell them apart."""
    bias = request.bias is None or all(_alone(term, 4) for term in request.bias.terms())
    return all(isinstance(leaf, EVEN) for leaf in request.mask.leaves()) and bias and _known_score(request.score)


def _same_heads(request: Request) -> bool:
    """Whether all heads have one score, bias, sink and temperature."""
    sink = getattr(request.normalizer, "sink", None) if isinstance(request.normalizer, Softmax) else None
    numbers = (sink, request.temperature)
    even = all(not isinstance(part, Tensor) or part.numel() == 1 for part in numbers)
    return request.bias is None and even and _shared_score(request.score)


def _alone(term: object, rank: int) -> bool:
    """Whether a bias has no batch axis of its own."""
    tensor = getattr(term, "tensor", None)
    return not (isinstance(tensor, Tensor) and tensor.ndim >= rank and tensor.shape[-rank] > 1)


def _known_score(score: Score) -> bool:
    inner = score.score if isinstance(score, SoftCapped) else score
    return isinstance(inner, Dot | ScaledDot | Cosine | General | Additive | ConcatMLP)


def _shared_score(score: Score) -> bool:
    inner = score.score if isinstance(score, SoftCapped) else score
    shared = {"weight": 2, "w_query": 2, "w_key": 2, "v": 1, "b": 1}
    tensors = ((getattr(inner, name, None), rank) for name, rank in shared.items())
    return all(not isinstance(tensor, Tensor) or tensor.ndim == rank for tensor, rank in tensors)
