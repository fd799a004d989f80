"""Missed: attention that a model runs and that is not intercepted, found by tracing its operators.

Attention is a product of two activations (scores) that goes through a softmax, or another function that makes weights
of it, and is then multiplied with a third activation (values). A product with a parameter, or with what is computed
from parameters alone, is a linear layer. One linear layer may stand between scores and softmax, and one between softmax
and values: talking heads.
"""

import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from regard.engine.fork import fork_waits
from regard.inspection.hooks.call import ModuleNames

OWN = "it multiplies a softmax (or the like) of a product of two activations with values itself"
DIRECT = "it calls torch.ops.aten.{} directly"
NESTED = "it gives nested tensors to scaled_dot_product_attention"
NAME = "it calls regard.attend by a name in a file that holds none of the model's classes"
THREAD = "it calls attention in another thread than that of the capture"
OWN_THREAD = f"{OWN}, in another thread than that of the capture"
INTERNAL = ("regard.inspection", "torch.utils._contextlib")  # modules between a user's call and a warning
NAMED = 8  # layers listed for each reason


@dataclass(frozen=True)
class Missed:
    """Attention that was not captured: the module that ran it, why, and how often it ran."""

    layer: str
    reason: str
    calls: int = 1


def listed(missed: Sequence[Missed]) -> str:
    """The layers by reason, as text."""
    reasons: dict[str, list[str]] = {}
    for each in missed:
        reasons.setdefault(each.reason, []).append(each.layer)
    texts = []
    for reason, layers in reasons.items():
        more = f" and {len(layers) - NAMED} more" if len(layers) > NAMED else ""
        texts.append(f"{', '.join(layers[:NAMED])}{more} ({reason})")
    return "; ".join(texts)


def warn(message: str) -> None:
    """Warn at the first caller outside of this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(INTERNAL):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


_lock = fork_waits()


class Watch:
    """Collects what is missed in the modules of one model, in any thread. `block` is what texts call the block."""

    def __init__(self, model: nn.Module, block: str = "capture") -> None:
        self.model, self.names = model, ModuleNames(model)
        self._block = block
        self._calls: Counter[tuple[str, str]] = Counter()

    def note(self, reason: str) -> None:
        """Count a call of the module of the model that is running, if there is one."""
        running = self.names.running()
        if running is not None:
            with _lock:
                self._calls[running.path, reason.replace("the capture", f"the {self._block}")] += 1

    @property
    def missed(self) -> tuple[Missed, ...]:
        """All so far, in the order in which they first ran."""
        with _lock:
            return tuple(Missed(path, reason, calls) for (path, reason), calls in self._calls.items())


class _Watches(threading.local):
    def __init__(self) -> None:
        self.here: list[Watch] = []  # their block was opened in this thread
        self.elsewhere: list[Watch] = []  # their model runs in this thread, their block was opened in another


local = _Watches()
open_watches: list[Watch] = []  # of all threads


# flags of a tensor
WEIGHT = 1  # follows from parameters and buffers alone
MADE = 2  # and a product was among its operators
SCORE = 4  # follows from a product of two activations
PROBABILITY = 8  # and from a softmax of it
MIXED = 16  # and then from a linear layer
STRICT = 32  # a probability that a linear layer ends: of functions that often follow products, such as relu
SCORES = SCORE | PROBABILITY | MIXED | STRICT

# operators by name, with the indices of the two tensors they multiply
PRODUCTS = {
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot", "inner", "linear", "convolution", "_grouped_mm"), (0, 1)),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "tensordot"), (0, 1)),
    **dict.fromkeys(("addmm", "addbmm", "baddbmm", "baddbmm_", "addmv", "addr", "_addmm_activation"), (1, 2)),
}
SOFTMAXES = ("_softmax", "softmax", "_safe_softmax", "special_softmax", "exp", "exp_", "exp2", "_sparse_softmax")
ACTIVATIONS = ("relu", "relu_", "sigmoid", "sigmoid_", "clamp_min", "clamp_min_", "hardsigmoid", "softplus")
SDPA = "scaled_dot_product_attention"
REDUCTIONS = ("sum", "mean", "amax", "amin", "max", "min", "logsumexp", "var", "std", "norm", "linalg_vector_norm")
FUSED = ("_scaled_dot_product_", "_flash_attention_forward", "_efficient_attention_forward", "_fused_sdp_attention")
ENTRIES = 4096  # storages that are tracked before those that were freed are dropped


class OperatorTrace:
    """Follows the results of operators and calls `note` where they are attention.

    Flags are stored by storage, so that views need no rules. A weak reference keeps the address of a storage from being
    used again, but not its data.
    """

    def __init__(self, model: nn.Module, note: Callable[[str], None], own: str) -> None:
        self._note, self._own = note, own
        self._flags: dict[int, tuple[int, StorageWeakRef]] = {}
        self._limit = ENTRIES
        for tensor in (*model.parameters(), *model.buffers()):
            self._put(tensor, WEIGHT)
        self._limit += 2 * len(self._flags)

    def record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Take an operator with its arguments and result."""
        name, product, writes = _kind(func)
        if product is None:
            flags = self._elementwise(name, args, kwargs, out)
        elif product == ():
            self._note(DIRECT.format(name))
            return
        elif name == SDPA:  # in inference mode; calls that are not nested were intercepted inside
            if args[0].is_nested:
                self._note(NESTED)
            return
        elif name == "einsum":
            flags = self._product(_tensors(args))
        else:
            flags = self._product(_tensors([args[index] for index in product if index < len(args)]))
        if flags or writes:
            for tensor in _tensors((out,)):
                self._put(tensor, flags if tensor.is_floating_point() else flags & WEIGHT)

    def _elementwise(self, name: str, args: Any, kwargs: Any, out: Any) -> int:
        """The flags that an operator which is no product gives its result."""
        flagged = [(self._get(tensor), tensor) for tensor in _tensors(args)]
        if kwargs:
            flagged += [(self._get(tensor), tensor) for tensor in _tensors(kwargs.values())]
        joined = 0
        for flags, _ in flagged:
            joined |= flags
        if not joined:
            return 0
        if all(flags & WEIGHT for flags, _ in flagged):
            return joined
        joined &= SCORES
        if not joined & SCORE or (name in REDUCTIONS and _over_keys(args)):
            return 0
        if name in SOFTMAXES:
            return SCORE | PROBABILITY
        if name in ACTIVATIONS and not joined & (PROBABILITY | MIXED):
            return SCORE | PROBABILITY | STRICT
        if name == "mul" and joined & PROBABILITY and isinstance(out, Tensor):
            spread = [flags & PROBABILITY and tensor.numel() < out.numel() for flags, tensor in flagged]
            if any(spread) and not all(flags & (PROBABILITY | WEIGHT) for flags, _ in flagged):
                self._note(self._own)  # weights[..., None] * values, to be added up
                return 0
        return joined

    def _product(self, operands: list[Tensor]) -> int:
        flagged = [(self._get(operand), operand) for operand in operands]
        batched = all(operand.ndim > 2 for _, operand in flagged)
        # learned queries are in products with a batch axis, weights of linear layers are not
        active = [flags for flags, _ in flagged if not flags & WEIGHT or (batched and flags & MADE)]
        if not active:
            return WEIGHT | MADE
        if len(active) == 1:
            flags = active[0] & SCORES
            return 0 if flags & (MIXED | STRICT) or not flags else flags | MIXED
        some = [bool(flags & PROBABILITY) for flags in active]
        if all(some):
            return SCORE | PROBABILITY
        if any(some):
            self._note(NESTED if any(operand.is_nested for _, operand in flagged) else self._own)
            return 0
        return SCORE

    def _get(self, tensor: Tensor) -> int:
        if type(tensor) is nn.Parameter:
            return WEIGHT
        address = _address(tensor)
        entry = None if address is None else self._flags.get(address)
        return 0 if entry is None else entry[0]

    def _put(self, tensor: Tensor, flags: int) -> None:
        address = _address(tensor)
        if address is None:
            return
        entry = self._flags.get(address)
        if entry is not None:
            if flags:
                self._flags[address] = (flags, entry[1])
            else:
                del self._flags[address]
        elif flags:
            self._flags[address] = (flags, StorageWeakRef(tensor.untyped_storage()))
            if len(self._flags) > self._limit:
                self._flags = {key: entry for key, entry in self._flags.items() if not entry[1].expired()}
                self._limit = ENTRIES + 2 * len(self._flags)


def _address(tensor: Tensor) -> int | None:
    """The address of its storage; None if it has none."""
    try:
        address: int = tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError, ValueError):  # nested, sparse, uninitialized, or of a class of its own
        return None
    return address


@cache
def _kind(func: Any) -> tuple[str, tuple[int, ...] | None, bool]:
    """The name of an operator, the indices of what it multiplies (empty if it is fused attention; None if it is no
    product), and whether it writes to its arguments."""
    name: str = func.__name__.partition(".")[0]  # without the overload
    schema = getattr(func, "_schema", None)  # operators that take functions have none
    writes = schema is None or bool(schema.is_mutable)
    if name.startswith(FUSED) and "backward" not in name:
        return name, (), writes
    return name, (0, 1) if name in ("einsum", SDPA) else PRODUCTS.get(name), writes


def _over_keys(args: Any) -> bool:
    """Whether a reduction is over the last axis, or all; the maximum of two tensors is no reduction."""
    if len(_tensors(args)) > 1:
        return False
    axes = [axis for axis in args[1:] if isinstance(axis, int | list | tuple) and not isinstance(axis, bool)]
    if not axes:
        return True
    listed = [axes[0]] if isinstance(axes[0], int) else axes[0]
    return not listed or any(axis in (-1, args[0].ndim - 1) for axis in listed)


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """The tensors among arguments or results, in lists too."""
    tensors: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, tuple | list):
            tensors += _tensors(value)
    return tensors
