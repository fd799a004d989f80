"""regard: compute, see and understand attention."""

import importlib
from typing import TYPE_CHECKING, Any

from regard.engine.attend import attend
from regard.engine.request import Aux
from regard.spec import biases, masks, normalizers, scores
from regard.spec.dropout import Dropout

if TYPE_CHECKING:
    from regard import lab
    from regard.engine.plan import plan
    from regard.engine.sdpa import sdpa
    from regard.inspection.explain import explain
    from regard.spec import positions

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

# loaded when first used, so that `import regard` stays light
_LATER = {
    "explain": "regard.inspection.explain",
    "lab": "regard.lab",
    "plan": "regard.engine.plan",
    "positions": "regard.spec.positions",
    "sdpa": "regard.engine.sdpa",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    module = importlib.import_module(_LATER[name])
    return getattr(module, name, module)


def __dir__() -> list[str]:
    return sorted(__all__)
