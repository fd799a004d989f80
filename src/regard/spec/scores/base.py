"""Score: how well a query and a key match."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.spec.forms import Form, additive_form, formula_form, per_head, product_form, relative_form, unit
from regard.spec.part import Part
from regard.spec.plane import Pairs
from regard.spec.steps import DotProduct, HiddenLayer, RelativeDot, ScoreStep, default_scale

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "sigmoid": torch.sigmoid,
}


class Score(Part):
    """A scalar for each (query, key) pair, before bias, mask and temperature.

    Inside, queries are (batch, kv head, group, query, d_q) and keys (batch, kv head, 1, key, d_k). A score of one's own
    defines `formula`; with `steps` the native engine and FlexAttention run it, and tiles are cheaper.
    """

    family = "scores"
    definitions = ("formula", "change", "factor")
    derived = ("form", "step", "steps", "lower", "symbols")
    step: ScoreStep | None = None  # what it does to another score, for one that changes another

    #: how engines compute it: "product" q′·k′, "sum" v·φ(a + b), "relative", or "function"
    form: str = "product"

    @property
    def positional(self) -> bool:
        """Whether the score depends on i and j."""
        return False

    def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
        """The definition, pair by pair and dense: (batch, kv head, group, query, key)."""
        raise NotImplementedError(f"{type(self).__name__} must define formula(query, key, pairs)")

    def lower(self, query: Tensor, key: Tensor) -> Form:
        """The same as a form that computes any rectangle alone; nothing of size query × key."""
        steps = self.steps()
        if len(steps) == 1:
            return form_of(steps[0], query, key)
        learned = tuple(tensor for tensor in self.parameters.values() if tensor.requires_grad)
        return formula_form(self.formula, query, key, learned)

    def steps(self) -> tuple[ScoreStep, ...]:
        """The same as primitive steps, the innermost first; none where it has only `formula`."""
        return ()

    @property
    def functions(self) -> tuple[Callable[..., Tensor], ...]:
        """The users' functions in it, of (score, b, h, i, j)."""
        return ()

    def check(self, d_query: int, d_key: int, kv_heads: int, group: int) -> None:
        """Raise if widths or heads do not fit."""
        if d_query != d_key:
            raise ValueError(
                f"{type(self).__name__} multiplies query and key, so their widths must be equal: query has {d_query}, "
                f"key has {d_key}; project one of them, or use scores.General or scores.Additive, which take different "
                "widths"
            )

    def flops(self, d_query: int, d_key: int) -> int:
        """Floating-point operations per pair in products, two for a multiply and add, without nonlinearities."""
        return 2 * d_key

    def prepare_flops(self, queries: int, keys: int, d_query: int, d_key: int) -> int:
        """The same for what is done once per query and once per key (over all heads)."""
        return 0

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The tensors it holds, by name."""
        return {name: value for name, value in self.attributes.items() if isinstance(value, Tensor)}


def form_of(step: ScoreStep, query: Tensor, key: Tensor) -> Form:
    """The form of a score's first step."""
    match step:
        case DotProduct():
            factor = step.factor(query.shape[-1])
            if step.weight is not None:
                query = query @ per_head(step.weight.to(query.dtype), 2, query.shape[1], query.shape[2], "weight")
            if step.unit:
                query, key = unit(query), unit(key)
            return product_form(query if factor == 1.0 else query * factor, key)
        case HiddenLayer():
            return additive_form(*hidden_inputs(step, query, key), ACTIVATIONS[step.phi])
        case RelativeDot():
            content, place, table = relative_inputs(step, query)
            return relative_form(content, place, key, table)
    raise TypeError(f"{type(step).__name__} changes a score; DotProduct, HiddenLayer or RelativeDot comes before it")


def hidden_inputs(step: HiddenLayer, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """W₁q + b, W₂k and v."""
    kv_heads, group = query.shape[1:3]
    dtype = query.dtype
    a = query @ _shared(step.w_query.to(dtype), kv_heads, group, "w_query").mT
    b = key @ _shared(step.w_key.to(dtype), kv_heads, 1, "w_key").mT
    if step.b is not None:
        a = a + per_head(step.b.to(dtype), 1, kv_heads, group, "b").unsqueeze(-2)
    return a, b, per_head(step.v.to(dtype), 1, kv_heads, group, "v")


def _shared(matrix: Tensor, kv_heads: int, group: int, name: str) -> Tensor:
    """One matrix for all heads stays one: torch then multiplies once, and not head by head."""
    return matrix if matrix.ndim == 2 else per_head(matrix, 2, kv_heads, group, name)


def relative_inputs(step: RelativeDot, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(q + u) · scale, (q + v) · scale and the table with its head axes."""
    kv_heads, group = query.shape[1:3]

    def shifted(by: Tensor | None) -> Tensor:
        if by is None:
            return query
        return query + per_head(by.to(query.dtype), 1, kv_heads, group, "u").unsqueeze(-2)

    factor = default_scale(query.shape[-1]) if step.scale is None else float(step.scale)
    table = per_head(step.keys.to(query.dtype), 2, kv_heads, group, "keys")
    return shifted(step.u) * factor, shifted(step.v) * factor, table
