"""regard: compute, see and understand attention."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard import hf, lab, models, nn
    from regard.engine.attend import attend
    from regard.engine.plan import plan
    from regard.engine.request import Aux
    from regard.engine.ring import Ring, RingPeerLost
    from regard.engine.sdpa import sdpa
    from regard.engine.sdpa_override import accelerating
    from regard.inspection import interventions
    from regard.inspection.capture import Capture, capture
    from regard.inspection.explain import explain
    from regard.inspection.interventions.block import intervene
    from regard.inspection.interventions.effect import effect
    from regard.inspection.load import load
    from regard.inspection.matrix import AttentionMatrix, matrix, rollout
    from regard.models.see import see
    from regard.playground.serve import play
    from regard.spec import biases, masks, normalizers, positions, scores
    from regard.spec.dropout import Dropout

__version__ = "0.2.0"

__all__ = [
    "AttentionMatrix",
    "Aux",
    "Capture",
    "Dropout",
    "Ring",
    "RingPeerLost",
    "__version__",
    "accelerating",
    "attend",
    "biases",
    "capture",
    "effect",
    "explain",
    "hf",
    "intervene",
    "interventions",
    "lab",
    "load",
    "masks",
    "matrix",
    "models",
    "nn",
    "normalizers",
    "plan",
    "play",
    "positions",
    "rollout",
    "scores",
    "sdpa",
    "see",
]

# Every name is loaded when it is first used: `import regard` and `regard --help` do not load torch.
_MODULES = {
    "AttentionMatrix": "regard.inspection.matrix",
    "Aux": "regard.engine.request",
    "Capture": "regard.inspection.capture",
    "Dropout": "regard.spec.dropout",
    "Ring": "regard.engine.ring",
    "RingPeerLost": "regard.engine.ring",
    "accelerating": "regard.engine.sdpa_override",
    "attend": "regard.engine.attend",
    "biases": "regard.spec.biases",
    "capture": "regard.inspection.capture",
    "effect": "regard.inspection.interventions",
    "explain": "regard.inspection.explain",
    "hf": "regard.hf",
    "intervene": "regard.inspection.interventions",
    "interventions": "regard.inspection.interventions",
    "lab": "regard.lab",
    "load": "regard.inspection.load",
    "masks": "regard.spec.masks",
    "matrix": "regard.inspection.matrix",
    "models": "regard.models",
    "nn": "regard.nn",
    "normalizers": "regard.spec.normalizers",
    "plan": "regard.engine.plan",
    "play": "regard.playground",
    "positions": "regard.spec.positions",
    "rollout": "regard.inspection.matrix",
    "scores": "regard.spec.scores",
    "sdpa": "regard.engine.sdpa",
    "see": "regard.models.see",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    module = importlib.import_module(_MODULES[name])
    value = globals()[name] = getattr(module, name, module)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
