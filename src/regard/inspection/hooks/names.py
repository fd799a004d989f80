"""Names: which module of a model is running. It is read off the stack, because a hook would switch off torch's fast
paths."""

import sys
from types import FrameType
from typing import NamedTuple

from torch import nn


class Place(NamedTuple):
    """The path of a module, and whether its model is generating."""

    path: str
    generating: bool


class Names:
    """The modules of a model by their paths; the model itself goes by its class."""

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
        """The first module that was compiled, in which nothing can be heard."""
        for module, path in self._paths.items():
            if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
                return path
        return None

    def running(self) -> Place | None:
        """The innermost module that some function on the stack was called with first; None if it is not the model's."""
        path, generating = None, False
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            module = _first(frame)
            if module is not None and module in self._paths:
                path = path or self._paths[_attention(module)]
                generating = generating or frame.f_code.co_name == "generate"
            frame = frame.f_back
        return None if path is None else Place(path, generating)


def _first(frame: FrameType) -> nn.Module | None:
    """The first argument of a function, if it is a module."""
    code = frame.f_code
    if not code.co_argcount:
        return None
    found = frame.f_locals.get(code.co_varnames[0])
    return found if isinstance(found, nn.Module) else None


def _attention(module: nn.Module) -> nn.Module:
    """The fast path of an encoder layer runs without its attention module."""
    return module.self_attn if isinstance(module, nn.TransformerEncoderLayer) else module
