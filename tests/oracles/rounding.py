"""What rounding does to a formula: the same operations, each result off by a random part of one unit in the last place.

The error of one run in float32 is a single draw; of a result with few numbers it is often 0 by luck. Here float64
operations are disturbed as those of float32 would be, as often as wanted, forward and backward. This is first order in
the unit, so what is found for float32 holds for float64 in proportion.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# views, copies, choices, comparisons, sums of equals (gather, scatter) round nothing
ROUNDS = (
    *(
        "add",
        "add_",
        "sub",
        "sub_",
        "rsub",
        "mul",
        "mul_",
        "div",
        "div_",
        "reciprocal",
        "sum",
        "index_put",
        "index_put_",
    ),
    *("_index_put_impl_", "exp", "log", "pow", "sqrt", "rsqrt", "sin", "cos", "erf", "tanh", "tanh_backward"),
    *("gelu", "gelu_backward", "sigmoid", "sigmoid_backward", "cumsum", "scatter_add", "mm", "bmm"),
)
PRODUCTS = ("mm", "bmm")  # every product in their sums rounds too


class Rounded(TorchDispatchMode):
    """Within it, every float operation that rounds is off by up to `unit` of its result, uniformly."""

    def __init__(self, unit: float, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.unit, self.generator, self.paused = unit, torch.Generator().manual_seed(seed), False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in PRODUCTS and not self.paused and args[0].dtype == torch.float64:
            args = (self._off(args[0]), *args[1:])
        found = func(*args, **(kwargs or {}))
        if self.paused or name not in ROUNDS or not isinstance(found, Tensor) or found.dtype != torch.float64:
            return found
        off = self._off(found)
        return found.copy_(off) if name.endswith("_") else off

    def _off(self, tensor: Tensor) -> Tensor:
        noise = torch.rand(tensor.shape, generator=self.generator, dtype=torch.float64) * (2 * self.unit) - self.unit
        return torch.where(tensor.isfinite(), tensor * (1 + noise), tensor)  # what is infinite stays so

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Exact arithmetic for a while."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before


DRAWS = 4
SINGLE = torch.finfo(torch.float32).eps
NEAREST = SINGLE / 2  # the most that rounding to the nearest number is off by


def scatter(
    compute: Callable[[Rounded], dict[str, Tensor]], truth: dict[str, Tensor], unit: float = SINGLE
) -> dict[str, float]:
    """Of each result, the largest root mean square error over some draws with this unit."""
    found = dict.fromkeys(truth, 0.0)
    for seed in range(DRAWS):
        rounded = Rounded(unit, seed)
        with rounded:
            results = compute(rounded)
        for name, right in truth.items():
            difference = (results[name].detach() - right.detach())[right.isfinite()]
            if difference.numel():
                found[name] = max(found[name], float(difference.double().square().mean().sqrt()))
    return found


def budget(formulas: float, right: Tensor, dtype: torch.dtype) -> float:
    """The root mean square error that a result may have where the formula's own is `formulas`.

    At most twice the error of the plain formula in that precision, plus one rounding of the largest number. Of n
    numbers the root mean square scatters by 1/√(2n), of which four are allowed. In float64 the formula that serves as
    the truth is off by as much once more.
    """
    finite = right.detach()[right.isfinite()].double()
    if not finite.numel():
        return 0.0
    times = 3.0 if dtype == torch.float64 else 2.0
    band = torch.finfo(dtype).eps * float(finite.abs().max())
    return times * formulas * (1 + 4 / math.sqrt(2 * finite.numel())) + band
