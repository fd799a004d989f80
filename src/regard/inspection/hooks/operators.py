"""Operators: which of torch's operators multiply, make weights of scores, or reduce, by name."""

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from torch import Tensor

# operators by name, with the indices of the two tensors they multiply
PRODUCTS = {
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot", "inner", "linear", "convolution", "_grouped_mm"), (0, 1)),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "tensordot", "cdist", "_cdist_forward", "_euclidean_dist"), (0, 1)),
    **dict.fromkeys(("addmm", "addbmm", "baddbmm", "baddbmm_", "addmv", "addr", "_addmm_activation"), (1, 2)),
}
CONVOLUTIONS = ("convolution", "conv1d", "conv2d", "conv3d")
SOFTMAXES = ("_softmax", "softmax", "_safe_softmax", "special_softmax", "_sparse_softmax")
EXPONENTIALS = ("exp", "exp_", "exp2")
ACTIVATIONS = ("relu", "relu_", "sigmoid", "sigmoid_", "clamp_min", "clamp_min_", "hardsigmoid", "softplus")
SDPA = "scaled_dot_product_attention"
REDUCTIONS = ("sum", "mean", "amax", "amin", "max", "min", "logsumexp", "var", "std", "norm", "linalg_vector_norm")
FUSED = ("_scaled_dot_product_", "_flash_attention_forward", "_efficient_attention_forward", "_fused_sdp_attention")
HIDING = ("masked_fill", "masked_fill_", "where", "nan_to_num", "nan_to_num_")  # weights are those after these
NOISE = ("bernoulli", "bernoulli_")  # of dropout
CHANGING = ("add", "add_", "sub", "sub_", "rsub", "pow", "pow_", "square", "sqrt", "sqrt_", "clamp", "clamp_", "lerp")
DIVIDING = ("div", "div_", "mul", "mul_")
COPIES = ("reshape", "reshape_as", "flatten", "contiguous", "to", "type_as")  # views, or copies where there is none
RESHAPES = ("reshape", "flatten", "unflatten", "_reshape_copy", "view_copy")


def weight_function(name: str, *, bare: bool) -> str | None:
    """What makes weights of scores; None if the operator does not. `bare`: nothing has made weights of them before, and
    no linear layer has mixed them."""
    if name in SOFTMAXES:
        return "softmax"
    if not bare and name not in EXPONENTIALS:
        return None
    return "exp" if name in EXPONENTIALS else name if name in ACTIVATIONS else None


def softmax_axis(args: Any, kwargs: Any) -> int:
    """The axis that a softmax is over."""
    axis = args[1] if len(args) > 1 else kwargs.get("dim", -1)
    return axis if isinstance(axis, int) else -1


def address_of(tensor: Tensor) -> int | None:
    """The address of its storage; None if it has none."""
    try:
        address: int = tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError, ValueError):  # nested, sparse, uninitialized, or of a class of its own
        return None
    return address


class OperatorKind(NamedTuple):
    """An operator: its name, the indices of what it multiplies (empty if it is fused attention; None if it is no
    product), whether it writes to its arguments, and whether its results are views of them."""

    name: str
    product: tuple[int, ...] | None
    writes: bool
    views: bool


@cache
def kind_of(func: Any) -> OperatorKind:
    """What an operator does."""
    name: str = func.__name__.partition(".")[0]  # without the overload
    schema = getattr(func, "_schema", None)  # operators that take functions have none
    writes = schema is None or bool(schema.is_mutable)
    shared = schema is not None and any(each.alias_info is not None for each in schema.returns)
    views = (shared and not writes and name not in COPIES) or name == "_unsafe_view"
    if name.startswith(FUSED) and "backward" not in name:
        return OperatorKind(name, (), writes, views)
    return OperatorKind(name, (0, 1) if name in ("einsum", SDPA) else PRODUCTS.get(name), writes, views)


def is_over_keys(args: Any) -> bool:
    """Whether a reduction is over the last axis, or all; the maximum of two tensors is no reduction."""
    if len(tensors_in(args)) > 1:
        return False
    axes = [axis for axis in args[1:] if isinstance(axis, int | list | tuple) and not isinstance(axis, bool)]
    if not axes:
        return True
    listed = [axes[0]] if isinstance(axes[0], int) else axes[0]
    return not listed or any(axis in (-1, args[0].ndim - 1) for axis in listed)


def tensors_in(values: Iterable[Any]) -> list[Tensor]:
    """The tensors among arguments or results, in lists too."""
    tensors: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, tuple | list):
            tensors += tensors_in(value)
    return tensors
