"""OperatorTrace: follows the operators that a model runs, and finds the attention that it computes itself.

Attention is a product of two activations (scores) that goes through a softmax, or another function that makes weights
of it, and is then multiplied with a third activation (values). A product with a parameter, or with what is computed
from parameters alone, is a linear layer. One linear layer may stand between scores and softmax, and one between softmax
and values: talking heads.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from regard.inspection.hooks import parse
from regard.inspection.hooks.axes import (
    COLUMN,
    FEATURE,
    Axes,
    Layout,
    Product,
    axes_of,
    broadcast,
    is_strided,
    layout_of,
    marks,
    merged,
    product_of,
    resized,
)
from regard.inspection.hooks.call import AttentionCall
from regard.inspection.hooks.handwritten import CHANGED as CHANGED_WEIGHTS
from regard.inspection.hooks.handwritten import MIXED as MIXED_HEADS
from regard.inspection.hooks.handwritten import Factors, Weights, weights_of
from regard.inspection.hooks.missed import DIRECT, NESTED
from regard.inspection.hooks.operators import (
    ACTIVATIONS,
    CHANGING,
    CONVOLUTIONS,
    DIVIDING,
    HIDING,
    NOISE,
    REDUCTIONS,
    RESHAPES,
    SDPA,
    address_of,
    is_over_keys,
    kind_of,
    softmax_axis,
    tensors_in,
    weight_function,
)
from regard.inspection.hooks.storages import (
    CHANGED,
    MADE,
    MIXED,
    PROBABILITY,
    RANDOM,
    SCORE,
    SCORES,
    STRICT,
    WEIGHT,
    Entry,
    StorageTable,
)

OnCall = Callable[[Callable[[], AttentionCall]], None]

HELD = 4  # softmaxes that wait for their values


class OperatorTrace:
    """Follows the results of operators. Where they are attention, `on_call` gets a function that returns the call; what
    it cannot have is noted with a reason, and all is noted with the reason `own` if there is no `on_call`.
    """

    def __init__(self, model: nn.Module, note: Callable[[str], None], own: str, on_call: OnCall | None = None) -> None:
        self._note, self._own, self._on_call = note, own, on_call
        self._held: deque[Weights] = deque()
        self._storages = StorageTable((*model.parameters(), *model.buffers()))

    def before(self, func: Any, args: Any) -> None:
        """Take an operator before it runs: weights that it writes over are copied."""
        if not self._held or not args or not isinstance(args[0], Tensor):
            return
        name, writes = kind_of(func).name, kind_of(func).writes
        if writes and name not in HIDING:
            address = address_of(args[0])
            for weights in self._held:
                kept = weights.divided or name not in DIVIDING
                if weights.tensor is not None and kept and address_of(weights.tensor) == address:
                    weights.tensor = weights.tensor.clone()

    def record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Take an operator with its arguments and result."""
        name, product, writes, views = kind_of(func)
        if views:
            return
        if product is None:
            self._elementwise(name, args, kwargs, out, writes)
        elif product == ():
            self._fused(func, name, args, kwargs)
        elif name == SDPA:  # in inference mode; calls that are not nested were intercepted inside
            if args[0].is_nested:
                self._note(NESTED)
        elif isinstance(out, Tensor):
            factors = tensors_in(args if name == "einsum" else [args[index] for index in product if index < len(args)])
            self._product(name, args, factors, out, writes)

    def _fused(self, func: Any, name: str, args: Any, kwargs: Any) -> None:
        """A kernel of torch that was called directly."""
        read = partial(parse.kernel, func, *args, **kwargs)
        if self._on_call is None or not parse.is_known_kernel(func):
            self._note(DIRECT.format(name))
        else:
            self._on_call(read)

    def _elementwise(self, name: str, args: Any, kwargs: Any, out: Any, writes: bool) -> None:
        """An operator that is no product."""
        given = [(self._storages.get(tensor), tensor) for tensor in tensors_in(args)]
        if kwargs:
            given += [(self._storages.get(tensor), tensor) for tensor in tensors_in(kwargs.values())]
        flags, known = RANDOM if name in NOISE else 0, False
        for entry, _ in given:
            flags |= entry.flags
            known = known or entry.layout is not None
        if not known and not flags and not writes:
            return
        if flags and not all(entry.flags & WEIGHT for entry, _ in given):
            flags = flags & SCORES if flags & SCORE else flags & RANDOM
            if name.endswith("_like") or (name in REDUCTIONS and is_over_keys(args)):
                flags = 0
        results = tensors_in((out,))
        origin = _sources(given, flags) if flags & SCORE else ()
        source = _leading(given) if known else None
        if flags & SCORE:
            source = _leading([each for each in given if each[0].flags & SCORE])
            function = weight_function(name, bare=not flags & (PROBABILITY | MIXED))
            if function is not None:
                self._weights(function, args, kwargs, source, results[0], origin)
                return
        if flags & PROBABILITY and results:
            if self._is_weighted_sum(name, given, out):
                flags, origin = 0, ()
            elif not self._follow(name, given, results[0], origin) and _changes(name, given):
                flags |= CHANGED
        for result in results:
            layout = None if source is None else self._layout(name, args, source, result, given)
            own = flags if result.is_floating_point() else flags & WEIGHT
            if own or layout is not None or writes:
                self._storages.put(result, own, layout, origin if own else ())

    def _is_weighted_sum(self, name: str, given: list[tuple[Entry, Tensor]], out: Any) -> bool:
        """Whether this is weights[..., None] * values, to be added up; they are reported."""
        if name != "mul" or not isinstance(out, Tensor):
            return False
        spread = [entry for entry, tensor in given if entry.flags & PROBABILITY and tensor.numel() < out.numel()]
        if not spread or all(entry.flags & (PROBABILITY | WEIGHT) for entry, _ in given):
            return False
        self._report(spread[0])
        return True

    def _weights(
        self,
        function: str,
        args: Any,
        kwargs: Any,
        source: tuple[Entry, Tensor] | None,
        out: Tensor,
        origin: tuple[Factors | Weights, ...],
    ) -> None:
        """A softmax of scores, or another function that makes weights of them."""
        axes = layout = None
        if source is not None and is_strided(source[1]) and is_strided(out) and source[1].shape == out.shape:
            axes = axes_of(source[1], source[0].layout) if source[0].layout is not None else None
        axis = softmax_axis(args, kwargs) if function == "softmax" else _column_axis(axes, out)
        factors = origin[0] if origin and isinstance(origin[0], Factors) else None
        weights, axes = weights_of(out.detach(), axis, axes, factors, function)
        if axes is not None:
            layout = layout_of(out, axes)
        strict = STRICT if function in ACTIVATIONS else 0
        if self._on_call is None or strict or not is_strided(out):
            weights.tensor = weights.factors = None
        else:
            self._held.append(weights)
            while len(self._held) > HELD:
                late = self._held.popleft()
                late.tensor = late.factors = None
        self._storages.put(out, SCORE | PROBABILITY | strict, layout, (weights,))

    def _follow(
        self, name: str, given: list[tuple[Entry, Tensor]], out: Tensor, origin: tuple[Factors | Weights, ...]
    ) -> bool:
        """Whether pairs are hidden in weights after the softmax, or exponentials divided by their sum: the result is
        then what is held."""
        if name not in HIDING and name not in DIVIDING:
            return False
        followed = False
        for weights in origin:
            if not isinstance(weights, Weights) or weights.tensor is None or out.shape != weights.tensor.shape:
                continue
            if name in DIVIDING and weights.divided:
                continue
            own = address_of(weights.tensor)
            if own is not None and (own == address_of(out) or any(own == address_of(each) for _, each in given)):
                weights.tensor, followed = out.detach(), True
                weights.divided = weights.divided or name.startswith("div")
        return followed

    def _product(self, name: str, args: Any, factors: list[Tensor], out: Tensor, writes: bool) -> None:
        """A product of two tensors, or of more in an einsum."""
        entries = [self._storages.get(factor) for factor in factors]
        batched = all(factor.ndim > 2 for factor in factors)
        # learned queries are in products with a batch axis, weights of linear layers are not
        active = [
            number
            for number, entry in enumerate(entries)
            if not entry.flags & WEIGHT or (batched and entry.flags & MADE)
        ]
        product = None if any(factor.is_nested for factor in factors) else product_of(name, args, factors)
        if not active:
            self._storages.put(out, WEIGHT | MADE)
            return
        flags, origin = 0, tuple[Factors | Weights, ...]()
        parameter = 1 - active[0] if len(active) == 1 else None
        some = [number for number in active if entries[number].flags & PROBABILITY]
        if len(active) == 1:
            flags = entries[active[0]].flags & SCORES
            flags = 0 if flags & (MIXED | STRICT) or not flags else flags | MIXED
            origin = entries[active[0]].origin if flags else ()
        elif len(some) == len(active):
            flags = SCORE | PROBABILITY
        elif some:
            if any(factor.is_nested for factor in factors):
                self._note(NESTED)
            else:
                summed = None if product is None else product.contracted(some[0])
                self._report(entries[some[0]], factors[some[0]], summed)
        else:
            flags = SCORE
        layout, axes = self._product_layout(name, factors, entries, out, product, parameter)
        if not flags and layout is not None:
            layout = tuple((stride, mark & FEATURE) for stride, mark in layout)
        if flags == SCORE:
            self._storages.drop_freed()
            if self._on_call is not None and len(factors) == 2:
                tensors = (factors[0].detach(), factors[1].detach())
                origin = (Factors(tensors, (axes[0], axes[1]), product),)
        if flags or layout is not None or writes:
            self._storages.put(out, flags, layout, origin)

    def _product_layout(
        self,
        name: str,
        factors: Sequence[Tensor],
        entries: Sequence[Entry],
        out: Tensor,
        product: Product | None,
        parameter: int | None,
    ) -> tuple[Layout | None, list[Axes | None]]:
        """The layout of a product, and the axes of its factors."""
        axes = [axes_of(factor, entry.layout) for factor, entry in zip(factors, entries, strict=True)]
        if name in CONVOLUTIONS and axes[0] is not None and len(axes[0]) == out.ndim and out.ndim > 2:
            spread = (*axes[0][:1], ((out.shape[1], FEATURE),), *axes[0][2:])
        elif product is None or axes[0] is None or axes[1] is None or len(product.out) != out.ndim:
            return None, axes
        else:
            spread = product.axes(axes[0], axes[1], parameter)
        return layout_of(out, resized(spread, out.shape)), axes

    def _report(self, entry: Entry, factor: Tensor | None = None, summed: list[int] | None = None) -> None:
        """Weights that are multiplied with values, in a product that sums some axes of a factor made of them."""
        origin = [each for each in entry.origin if isinstance(each, Weights)]
        if self._on_call is None or not origin or (factor is not None and summed is None):
            self._note(self._own)
            return
        after = MIXED_HEADS if entry.flags & MIXED else CHANGED_WEIGHTS if entry.flags & CHANGED else ""
        for weights in origin:
            if weights.reported:
                continue
            weights.reported = True
            reason = weights.refusal()
            if reason is None and factor is not None and summed is not None:
                axes = None if entry.layout is None else axes_of(factor, entry.layout)
                reason = weights.product_refusal(factor.shape, summed, axes)
            if reason is not None:
                self._note(reason)
            else:
                self._on_call(partial(weights.call, after))
            weights.tensor = weights.factors = None
            if weights in self._held:
                self._held.remove(weights)
        self._storages.drop_freed()

    def _layout(
        self, name: str, args: Any, source: tuple[Entry, Tensor], out: Tensor, given: Sequence[tuple[Entry, Tensor]]
    ) -> Layout | None:
        """The layout of a result of an operator that is no product, from that of its leading argument."""
        entry, tensor = source
        address = address_of(out)
        if entry.layout is None or address is None or not (is_strided(out) and is_strided(tensor)):
            return None
        if out.shape == tensor.shape and out.stride() == tensor.stride():
            return entry.layout
        if address == address_of(tensor):
            return entry.layout
        axes = axes_of(tensor, entry.layout)
        if axes is None:
            return None
        if name in RESHAPES:
            return merged(axes, out)
        if name == "stack" and out.ndim == tensor.ndim + 1:
            at = (args[1] if len(args) > 1 else 0) % out.ndim
            return layout_of(out, (*axes[:at], ((out.shape[at], 0),), *axes[at:]))
        if out.ndim != tensor.ndim and not any(each.ndim == out.ndim for _, each in given):
            return None
        return layout_of(out, broadcast(axes, out.shape))


def _sources(given: Iterable[tuple[Entry, Tensor]], flags: int) -> tuple[Factors | Weights, ...]:
    """What the scores or weights among the arguments were made of."""
    kind = Weights if flags & PROBABILITY else Factors
    return tuple(dict.fromkeys(each for entry, _ in given for each in entry.origin if isinstance(each, kind)))


def _changes(name: str, given: Sequence[tuple[Entry, Tensor]]) -> bool:
    """Whether an operator changes weights: not dropout, a mask or a cast."""
    if name in CHANGING:
        return True
    others = [entry for entry, tensor in given if tensor.is_floating_point() and tensor.numel() > 1]
    return name in DIVIDING and sum(not entry.flags & RANDOM for entry in others) > 1


def _leading(given: Sequence[tuple[Entry, Tensor]]) -> tuple[Entry, Tensor] | None:
    """The argument whose axes the result has: scores before others, then the largest."""
    best: tuple[Entry, Tensor] | None = None
    for each in given:
        if each[0].layout is None:
            continue
        if best is None:
            best = each
        elif bool(each[0].flags & SCORE) != bool(best[0].flags & SCORE):
            best = each if each[0].flags & SCORE else best
        elif each[1].ndim > best[1].ndim or each[1].numel() > best[1].numel():
            best = each
    return best


def _column_axis(axes: Axes | None, out: Tensor) -> int:
    """The axis of the keys of exponentials: that of the second factor, if it is known, else the last."""
    columns = [] if axes is None else [number for number, pieces in enumerate(axes) if marks(pieces) & COLUMN]
    return columns[-1] if columns else out.ndim - 1
