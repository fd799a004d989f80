"""Asked: a call of one of torch's functions, as a value that an engine can answer."""

from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from regard.engine.native.library import library

KINDS = (Tensor, torch.nn.Parameter)


class Asked(Protocol):
    """The arguments of a call, in torch's order and with torch's names."""

    function: ClassVar[str]

    @property
    def query(self) -> Tensor:
        """The first of them."""

    def tensors(self) -> dict[str, Tensor | None]:
        """The tensors among them."""

    def sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Those of the queries and of the keys, (…, head, length, width)."""

    def words(self) -> str:
        """What is asked for beside plain attention."""

    def run(self, engine: str) -> Any:
        """What torch's function returns. Raises ValueError or TypeError, with the reason, for what it cannot do."""


def why_not(asked: Asked, engine: str) -> str | None:
    """None, or why torch must answer, going by where the call stands and by the kinds of its tensors."""
    if engine == "native" and asked.query.device.type != "cpu":
        return f"the native engine runs on the CPU, query is on {asked.query.device}; engine='tiled' runs on any"
    if engine == "native" and library() is None:
        return "the package was installed without its C++ core; engine='tiled' needs none"
    if torch._C._is_tracing():
        return "torch.jit.trace records torch's operators only"
    if torch._C._len_torch_dispatch_stack() > 0:
        mode = torch.utils._python_dispatch._get_current_dispatch_mode_stack()[-1]
        return f"{type(mode).__name__} listens to torch's operators, and would not see an engine"
    for name, tensor in asked.tensors().items():
        if tensor is None:
            continue
        if type(tensor) not in KINDS:
            return f"{name} is a {type(tensor).__name__}, not a plain tensor"
        if tensor.is_nested or tensor.layout != torch.strided:
            return f"{name} is a sparse or nested tensor"
    return None


def shape_of(tensor: object) -> tuple[int, ...]:
    """The sizes of what should be a tensor; nothing for a nested one, and while torch.jit.trace follows them."""
    if not isinstance(tensor, Tensor) or tensor.is_nested or torch._C._is_tracing():
        return ()
    return tuple(tensor.shape)
