"""regard: compute, see and understand attention."""

import importlib
from typing import TYPE_CHECKING, Any

from regard.engine.attend import attend
from regard.engine.plan import plan
from regard.engine.request import Aux
from regard.engine.sdpa import sdpa
from regard.spec import biases, masks, normalizers, positions, scores
from regard.spec.dropout import Dropout

if TYPE_CHECKING:
    from regard import lab
    from regard.inspection.explain import explain

__version__ = "0.1.0"

__all__ = [
    "Aux",
    "Dropout",
    "__version__",
    "attend",
    "biases",
    "explain",
    "lab",
    "masks",
    "normalizers",
    "plan",
    "positions",
    "scores",
    "sdpa",
]


def __getattr__(name: str) -> Any:
    if name == "lab":
        return importlib.import_module("regard.lab")
    if name == "explain":
        return importlib.import_module("regard.inspection.explain").explain
    raise AttributeError(f"module 'regard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
