"""Following: which operators of torch compute attention that is not heard, told from how tensors follow from others.

Attention is a product of two activations (scores) that goes through a softmax, or another function that makes weights
of it, and is then multiplied with a third activation (values). A product with a parameter, or with what is computed
from parameters alone, is a linear layer, and so is not one. One linear layer may stand between scores and softmax, and
one between softmax and values: heads that talk to each other.

What is known of a tensor is kept by its storage, so that views need no rules. A weak reference holds the place of a
storage in memory, so that no other is taken for it, but not its numbers.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from regard.inspection.hooks.missed import DIRECT, NESTED

# what is known of a tensor
WEIGHT = 1  # follows from parameters and buffers alone
MADE = 2  # and a product was among its operators
SCORE = 4  # follows from a product of two activations
PROBABILITY = 8  # and from a softmax of it
MIXED = 16  # and then from a linear layer
STRICT = 32  # a probability that a linear layer ends: of functions that often follow products, such as relu
KNOWN = SCORE | PROBABILITY | MIXED | STRICT

# operators by name, with the places of the two tensors they multiply
PRODUCTS = {
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot", "inner", "linear", "convolution", "_grouped_mm"), (0, 1)),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "tensordot"), (0, 1)),
    **dict.fromkeys(("addmm", "addbmm", "baddbmm", "baddbmm_", "addmv", "addr", "_addmm_activation"), (1, 2)),
}
SOFTMAXES = ("_softmax", "softmax", "_safe_softmax", "special_softmax", "exp", "exp_", "exp2", "_sparse_softmax")
OTHERS = ("relu", "relu_", "sigmoid", "sigmoid_", "clamp_min", "clamp_min_", "hardsigmoid", "softplus")
WHOLE = "scaled_dot_product_attention"
REDUCTIONS = ("sum", "mean", "amax", "amin", "max", "min", "logsumexp", "var", "std", "norm", "linalg_vector_norm")
FUSED = ("_scaled_dot_product_", "_flash_attention_forward", "_efficient_attention_forward", "_fused_sdp_attention")
ENTRIES = 4096  # storages that are remembered before those that are gone are forgotten


class Follow:
    """Is told of every operator that runs, and tells `note` of attention."""

    def __init__(self, model: nn.Module, note: Callable[[str], None], own: str) -> None:
        self._note, self._own = note, own
        self._flags: dict[int, tuple[int, StorageWeakRef]] = {}
        self._limit = ENTRIES
        for tensor in (*model.parameters(), *model.buffers()):
            self._put(tensor, WEIGHT)
        self._limit += 2 * len(self._flags)

    def ran(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """An operator with its arguments and result."""
        name, product, writes = _kind(func)
        if product is None:
            flags = self._passed(name, args, kwargs, out)
        elif product == ():
            self._note(DIRECT.format(name))
            return
        elif name == WHOLE:  # in inference mode; what is not nested was heard inside
            if args[0].is_nested:
                self._note(NESTED)
            return
        elif name == "einsum":
            flags = self._product(_tensors(args))
        else:
            flags = self._product(_tensors([args[place] for place in product if place < len(args)]))
        if flags or writes:
            for tensor in _tensors((out,)):
                self._put(tensor, flags if tensor.is_floating_point() else flags & WEIGHT)

    def _passed(self, name: str, args: Any, kwargs: Any, out: Any) -> int:
        """What an operator that is no product hands on."""
        known = [(self._get(tensor), tensor) for tensor in _tensors(args)]
        if kwargs:
            known += [(self._get(tensor), tensor) for tensor in _tensors(kwargs.values())]
        joined = 0
        for flags, _ in known:
            joined |= flags
        if not joined:
            return 0
        if all(flags & WEIGHT for flags, _ in known):
            return joined
        joined &= KNOWN
        if not joined & SCORE or (name in REDUCTIONS and _over_keys(args)):
            return 0
        if name in SOFTMAXES:
            return SCORE | PROBABILITY
        if name in OTHERS and not joined & (PROBABILITY | MIXED):
            return SCORE | PROBABILITY | STRICT
        if name == "mul" and joined & PROBABILITY and isinstance(out, Tensor):
            spread = [flags & PROBABILITY and tensor.numel() < out.numel() for flags, tensor in known]
            if any(spread) and not all(flags & (PROBABILITY | WEIGHT) for flags, _ in known):
                self._note(self._own)  # weights[..., None] * values, to be added up
                return 0
        return joined

    def _product(self, operands: list[Tensor]) -> int:
        known = [(self._get(operand), operand) for operand in operands]
        batched = all(operand.ndim > 2 for _, operand in known)
        # queries that follow from parameters alone are met in products with a batch axis, weights of layers are not
        active = [flags for flags, _ in known if not flags & WEIGHT or (batched and flags & MADE)]
        if not active:
            return WEIGHT | MADE
        if len(active) == 1:
            flags = active[0] & KNOWN
            return 0 if flags & (MIXED | STRICT) or not flags else flags | MIXED
        some = [bool(flags & PROBABILITY) for flags in active]
        if all(some):
            return SCORE | PROBABILITY
        if any(some):
            self._note(NESTED if any(operand.is_nested for _, operand in known) else self._own)
            return 0
        return SCORE

    def _get(self, tensor: Tensor) -> int:
        if type(tensor) is nn.Parameter:
            return WEIGHT
        place = _place(tensor)
        found = None if place is None else self._flags.get(place)
        return 0 if found is None else found[0]

    def _put(self, tensor: Tensor, flags: int) -> None:
        place = _place(tensor)
        if place is None:
            return
        found = self._flags.get(place)
        if found is not None:
            if flags:
                self._flags[place] = (flags, found[1])
            else:
                del self._flags[place]
        elif flags:
            self._flags[place] = (flags, StorageWeakRef(tensor.untyped_storage()))
            if len(self._flags) > self._limit:
                self._flags = {key: entry for key, entry in self._flags.items() if not entry[1].expired()}
                self._limit = ENTRIES + 2 * len(self._flags)


def _place(tensor: Tensor) -> int | None:
    """Of its storage in memory; None if it has none."""
    try:
        place: int = tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError, ValueError):  # nested, sparse, not yet made, or of a class of its own
        return None
    return place


@cache
def _kind(func: Any) -> tuple[str, tuple[int, ...] | None, bool]:
    """The name of an operator, the places of what it multiplies (none if it is attention as a whole; None if it is no
    product), and whether it writes to its arguments."""
    name: str = func.__name__.partition(".")[0]  # without the overload
    schema = getattr(func, "_schema", None)  # operators that take functions have none
    writes = schema is None or bool(schema.is_mutable)
    if name.startswith(FUSED) and "backward" not in name:
        return name, (), writes
    return name, (0, 1) if name in ("einsum", WHOLE) else PRODUCTS.get(name), writes


def _over_keys(args: Any) -> bool:
    """Whether a reduction takes the last axis, or all; the maximum of two tensors is none."""
    if len(_tensors(args)) > 1:
        return False
    axes = [axis for axis in args[1:] if isinstance(axis, int | list | tuple) and not isinstance(axis, bool)]
    if not axes:
        return True
    listed = [axes[0]] if isinstance(axes[0], int) else axes[0]
    return not listed or any(axis in (-1, args[0].ndim - 1) for axis in listed)


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """Those among arguments or results, in lists too."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, tuple | list):
            found += _tensors(value)
    return found
