"""Products: the queries and keys of a matrix as its score multiplies them, dimension by dimension."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.matrix.source import Computed
from regard.spec.normalizers import Softmax
from regard.spec.scores.base import form_of
from regard.spec.steps import Cap, DotProduct


class NoProductsError(ValueError):
    """Why the weights of a matrix have no products of queries and keys."""


@dataclass(frozen=True, eq=False)
class Products:
    """The score of query i and key j in head h is `scale` · Σ query[h, i] · key[kv_head[h], j], over dimensions.

    `names` are those of the two vectors. `then` says in a few words what follows the score before the softmax, if
    anything does. `lse` (head, query) is the logarithm of the softmax denominator, None for other normalizers.
    """

    query: Tensor
    key: Tensor
    kv_head: tuple[int, ...]
    scale: float
    lse: Tensor | None
    names: tuple[str, str] = ("q", "k")
    then: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Dimensions."""
        return self.query.shape[-1]

    @property
    def numbers(self) -> int:
        """How many numbers queries and keys are."""
        return self.query.numel() + self.key.numel()


def products(matrix: AttentionMatrix) -> Products:
    """Queries and keys of all heads of a matrix; NoProductsError where its weights have none, with the reason."""
    source, heads = matrix._source, matrix._maps.reshape(-1)
    if not isinstance(source, Computed):
        raise NoProductsError("these weights were stored as they are: queries and keys are not there")
    request = source.request
    steps, plane = request.score.steps(), request.plane
    if not steps or not isinstance(steps[0], DotProduct):
        raise NoProductsError(f"the score {request.score!r} is not a product of q and k")
    dot = steps[0]
    with torch.no_grad():
        form = form_of(replace(dot, scale=1.0), request.query.to(request.dtype), request.key.to(request.dtype))
        query, key = (operand.tensor.detach() for operand in form.operands)
        query = query.expand(plane.batch, plane.kv_heads, plane.group, *query.shape[-2:]).flatten(0, 2)
        lse = source.known().state.flatten(0, 1)[heads] if isinstance(request.normalizer, Softmax) else None
    kv = (heads // plane.heads) * plane.kv_heads + heads % plane.heads // plane.group
    used, kv_head = kv.unique(return_inverse=True)
    names = ("q", "k") if dot.plain else ("q̂", "k̂") if dot.unit else ("qW", "k")
    return Products(
        query[heads.to(query.device)].cpu(),
        key.flatten(0, 2)[used.to(key.device)].cpu(),
        tuple(kv_head.tolist()),
        dot.factor(request.query.shape[-1]),
        None if lse is None else lse.detach().cpu(),
        names,
        tuple(_then(matrix)),
    )


def _then(matrix: AttentionMatrix) -> list[str]:
    """What happens to a score before it becomes a weight by the softmax of its row."""
    source = matrix._source
    assert isinstance(source, Computed)
    request = source.request
    after = [f"cap {step.cap:g}" if isinstance(step, Cap) else "a function" for step in request.score.steps()[1:]]
    if request.bias is not None:
        after.append(f"plus {type(request.bias).__name__}")
    if isinstance(request.temperature, Tensor) or request.temperature != 1:
        after.append("divided by the temperature")
    if not isinstance(request.normalizer, Softmax):
        after.append(type(request.normalizer).__name__.lower())
    return after
