"""AttentionCall: one intercepted call, the module that made it, a copy to store, and the check of its weights."""

import copy
import sys
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.engine.context import autocast_disabled
from regard.engine.request import Spec
from regard.inspection.matrix import matrix
from regard.spec.dropout import Dropout
from regard.spec.part import Part

LOOSEST = 0.25  # largest tolerance: weights in half precision may be this far off, however large the logits are
CELLS = 1 << 24  # weights compared at once
SAMPLED, RUN = 16, 4  # rows of a layer that are sampled, in runs of this many


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """query: (…, head, query, width), key: (…, kv head, key, width), as the score takes them.

    `value` and `dropout` are for rerunning the call. `weights` are the model's own, after dropout, if it returns them;
    they are compared with ours. None of these three is stored. `exact` are weights, (batch, head, query, key), that are
    stored instead of queries; the query then has no width, and the key tells whether a call continues another.
    `channels`: the queries and keys are channels instead of tokens.
    """

    query: Tensor
    key: Tensor
    spec: Spec
    mechanism: str
    weights: Tensor | None = None
    value: Tensor | None = None
    dropout: float | Dropout = 0.0
    exact: Tensor | None = None
    channels: bool = False

    @property
    def rate(self) -> float:
        """The share of weights that are dropped."""
        return self.dropout.p if isinstance(self.dropout, Dropout) else self.dropout


class RunningModule(NamedTuple):
    """The path of a module, and whether its model is generating."""

    path: str
    generating: bool


class ModuleNames:
    """The modules of a model by path; the model itself has the name of its class.

    The running module is read off the stack, because a module hook would disable torch's fast paths.
    """

    def __init__(self, model: nn.Module) -> None:
        self._paths = {module: path or type(model).__name__ for path, module in model.named_modules()}

    def __contains__(self, module: nn.Module) -> bool:
        return module in self._paths

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._paths.values())

    @property
    def compiled(self) -> str | None:
        """The first compiled module; nothing can be intercepted in it."""
        for module, path in self._paths.items():
            if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
                return path
        return None

    def running(self) -> RunningModule | None:
        """The innermost module of the model that is the first argument of a function on the stack."""
        path, generating = None, False
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            module = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            if isinstance(module, nn.Module) and module in self._paths:
                if isinstance(module, nn.TransformerEncoderLayer):  # its fast path does not call its attention module
                    module = module.self_attn
                path = path or self._paths[module]
                generating = generating or frame.f_code.co_name == "generate"
            frame = frame.f_back
        return None if path is None else RunningModule(path, generating)


@dataclass
class TensorCopies:
    """Copies of calls, because models write over their tensors. Masks and biases that layers share are copied once."""

    _shared: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = field(default_factory=dict)

    def copy(self, call: AttentionCall) -> AttentionCall:
        """The same call on tensors of its own, with a batch and a head axis."""
        spec: Any = {name: self._part(part) for name, part in call.spec.items()}
        query, key = (copied(tensor) for tensor in (call.query, call.key))
        query, key = (tensor[(None,) * max(0, 4 - tensor.ndim)] for tensor in (query, key))
        exact = None if call.exact is None else copied(call.exact)
        return replace(call, query=query, key=key, spec=spec, weights=None, value=None, exact=exact)

    def _part(self, part: Any) -> Any:
        """Parts of a spec hold tensors too, which may be parameters that an optimizer writes over."""
        if isinstance(part, Tensor):
            key = (part.data_ptr(), part.shape, part.stride(), part.dtype)
            entry = self._shared.get(key)
            if entry is None or not torch.equal(entry[1], part):
                entry = self._shared[key] = (part, copied(part))  # holds the original, so that its address stays taken
            return entry[1]
        if isinstance(part, tuple):
            return tuple(map(self._part, part))
        if not isinstance(part, Part):
            return part
        own = copy.copy(part)
        for name, value in part.attributes.items():
            object.__setattr__(own, name, self._part(value))
        return own


def copied(tensor: Tensor) -> Tensor:
    """A plain tensor without a graph; expanded axes stay expanded."""
    with torch.inference_mode(False), torch.no_grad():
        small = tensor.detach()
        for axis, (size, step) in enumerate(zip(small.shape, small.stride(), strict=True)):
            if step == 0 and size > 1:
                small = small.narrow(axis, 0, 1)
        return small.clone().expand(tensor.shape)


def check_weights(call: AttentionCall) -> None:
    """Refuse a call whose weights, where the model returns them, are not those that its queries and keys give."""
    if call.exact is not None:
        return
    with autocast_disabled(call.query.device):
        ours = matrix(call.query, call.key, **call.spec)
        if call.weights is None:
            return
        theirs = call.weights
        if ours.shape != theirs.shape:
            raise ValueError(f"its weights are {tuple(theirs.shape)}, and queries and keys give {ours.shape}")
        height = max(1, CELLS * theirs.shape[-2] // max(1, theirs.numel()))
        errors = [0.0]
        for first in range(0, theirs.shape[-2], height):
            rows = slice(first, first + height)
            own, given = ours[(..., rows, slice(None))], theirs[..., rows, :]
            error = (own - given * (1.0 - call.rate)).abs()
            if call.rate:
                error = torch.where(given == 0, 0.0, error)
            # both may be NaN where the model has no numbers
            error = torch.where(_blind(call, rows) | (own.isnan() & given.isnan()), 0.0, error)
            errors += [float(error.max())] if error.numel() else []
        worst = float(torch.tensor(errors, device="cpu", dtype=torch.float64).max())  # NaN if one is
        if not worst <= (allowed := _tolerance(call)):
            raise ValueError(
                f"its weights are {worst:.1e} away from those of its queries, keys, mask and scale, more than "
                f"{allowed:.1e}: it does something to them that cannot be seen"
            )


def _blind(call: AttentionCall, rows: slice) -> Tensor:
    """Rows that see nothing: models have no weights there, and in some types not even numbers."""
    bias = call.spec.get("bias")
    if not isinstance(bias, Tensor) or bias.ndim < 2:
        return torch.zeros((), dtype=torch.bool, device=call.query.device)
    table = bias[..., rows, :] if bias.shape[-2] > 1 else bias
    return (table <= 0.5 * torch.finfo(bias.dtype).min).all(-1, keepdim=True)


def _tolerance(call: AttentionCall) -> float:
    """The error that rounding explains: that of a logit grows with its size."""
    assert call.weights is not None
    scale: float = getattr(call.spec.get("score"), "scale", None) or call.query.shape[-1] ** -0.5
    size = _longest(call.query) * _longest(call.key) * abs(scale)
    # models take the softmax in float32, whatever their type is
    eps = max(torch.finfo(dtype).eps for dtype in (call.weights.dtype, call.query.dtype, torch.float32))
    return min(LOOSEST, 8.0 * eps * (1.0 + size))


def _longest(tensor: Tensor) -> float:
    return float(tensor.float().norm(dim=-1).max()) if tensor.numel() else 0.0


def rounding_error(exact: AttentionCall, stored: AttentionCall, heads: tuple[int, ...] | None) -> float:
    """The largest difference of weights between two calls of the same heads, over sampled rows; `heads` are the indices
    of those compared, None for all. The stored call may have fewer keys."""
    if exact.exact is not None and stored.exact is not None:
        keys = stored.exact.shape[-1]
        moved = (exact.exact[..., :keys].double() - stored.exact.double()).abs()
        return float(moved.max()) if moved.numel() else 0.0
    rows = sampled_rows(exact.query.shape[-2])
    with autocast_disabled(exact.query.device):
        pair = []
        for call in (exact, stored):
            weights = matrix(call.query, call.key, **call.spec)[(..., rows, slice(None))]
            pair.append(weights if heads is None else weights[..., list(heads), :, :])
        error = (pair[0][..., : stored.key.shape[-2]] - pair[1]).abs()
    return float(error.max()) if error.numel() else 0.0


def sampled_rows(queries: int) -> list[int]:
    """Rows spread over all queries in short runs, which cost little more than single rows."""
    if queries <= SAMPLED:
        return list(range(queries))
    starts = [run * (queries - RUN) // (SAMPLED // RUN - 1) for run in range(SAMPLED // RUN)]
    return sorted({start + row for start in starts for row in range(RUN)})
