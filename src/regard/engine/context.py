"""torch contexts around a call: autocast, torch.func, forward-mode derivatives and torch.jit.trace."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.autograd import forward_ad

from regard.engine.torch_names import report_missing

report_missing()
AUTOCAST_DEVICES = ("cpu", "cuda", "mps", "xpu")  # torch raises for other devices
any_autocast = getattr(
    torch._C, "_is_any_autocast_enabled", lambda: True
)  # a tenth of the time that asking by device takes
AUTOCAST_INPUTS = (torch.float32, torch.float16, torch.bfloat16)


def autocast_enabled(tensor: object) -> bool:
    """Whether autocast is on for the device of an input."""
    return any_autocast() and isinstance(tensor, Tensor) and _autocast_on(tensor.device)


def autocast_dtype(tensor: Tensor) -> torch.dtype:
    """What torch's attention computes in: under autocast the lower precision, for every float but float64."""
    if tensor.dtype not in AUTOCAST_INPUTS or not _autocast_on(tensor.device):
        return tensor.dtype
    return torch.get_autocast_dtype(tensor.device.type)


def to_autocast(tensor: Tensor) -> Tensor:
    """The tensor in that precision; anything else is returned as it is."""
    return tensor.to(autocast_dtype(tensor)) if autocast_enabled(tensor) else tensor


def autocast_disabled(device: torch.device) -> AbstractContextManager[object]:
    """A context without it: what accumulates in float32 must stay there."""
    enabled = any_autocast() and _autocast_on(device)
    return torch.autocast(device.type, enabled=False) if enabled else nullcontext()


def _autocast_on(device: torch.device) -> bool:
    return device.type in AUTOCAST_DEVICES and torch.is_autocast_enabled(device.type)


def exporting() -> bool:
    """Whether torch.export is tracing the caller.

    torch 2.9 takes is_exporting() for true wherever it is compiled, and the flag behind it for what it is.
    """
    return bool(getattr(torch.compiler, "_is_exporting_flag", True)) and torch.compiler.is_exporting()


def exporting_onnx() -> bool:
    """Whether torch.onnx.export is tracing the caller."""
    return exporting() and torch.onnx.is_in_onnx_export()


tracing_state = torch._C._get_tracing_state  # not None within torch.jit.trace


def active_transform() -> str | None:
    """None, or what surrounds the call: 'vmap' of torch.func, another of its transforms, or a forward-mode level."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        kinds = [one.key() for one in torch._C._functorch.get_interpreter_stack() or ()]
        mapped = torch._C._functorch.TransformType.Vmap in kinds
        return "torch.func.vmap" if mapped else "torch.func"
    return "forward-mode derivatives" if forward_ad._current_level >= 0 else None


def transform_unsupported() -> str | None:
    """None, or why an engine with gradients of its own cannot run here."""
    around = active_transform()
    return None if around is None else f"under {around} only plain torch operators run: take engine='reference'"


def refuse_trace() -> None:
    """torch.jit.trace writes down torch's operators alone: it would keep one call's results as constants."""
    raise ValueError(
        "torch.jit.trace cannot follow attention that regard computes: it would store the results of this one call; "
        "use torch.compile, torch.export.export for a program in a file, or torch.onnx.export with dynamo=True"
    )


def refuse_vmap(around: str) -> None:
    """No engine runs under vmap: they look at their inputs."""
    if around == "torch.func.vmap":
        raise ValueError(
            "attend does not run under torch.func.vmap: it takes any number of leading axes, so give the mapped axis "
            "as one of these instead"
        )
