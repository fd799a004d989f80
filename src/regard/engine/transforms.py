"""Calls under torch.func and forward-mode derivatives, which only plain torch operators answer."""

import torch
from torch.autograd import forward_ad

tracing = torch._C._get_tracing_state  # not None within torch.jit.trace


def transformed() -> str | None:
    """None, or what surrounds the call: 'vmap' of torch.func, another of its transforms, or a forward-mode level."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        kinds = [one.key() for one in torch._C._functorch.get_interpreter_stack() or ()]
        mapped = torch._C._functorch.TransformType.Vmap in kinds
        return "torch.func.vmap" if mapped else "torch.func"
    return "forward-mode derivatives" if forward_ad._current_level >= 0 else None


def unanswered() -> str | None:
    """None, or why an engine with gradients of its own cannot run here."""
    around = transformed()
    return None if around is None else f"under {around} only plain torch operators run: take engine='reference'"


def refuse_trace() -> None:
    """torch.jit.trace writes down torch's operators alone: it would keep one call's results as constants."""
    raise ValueError(
        "torch.jit.trace cannot follow attention that regard computes: it would store the results of this one call; "
        "use torch.compile, or torch.export.export for a program in a file"
    )


def refuse_vmap(around: str) -> None:
    """No engine runs under vmap: they look at their inputs."""
    if around == "torch.func.vmap":
        raise ValueError(
            "attend does not run under torch.func.vmap: it takes any number of leading axes, so give the mapped axis "
            "as one of these instead"
        )
