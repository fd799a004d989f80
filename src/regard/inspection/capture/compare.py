"""Comparing: the weights of a call with those of what is stored of it."""

from regard.engine.autocast import off
from regard.inspection.capture.heads import Chosen, chosen
from regard.inspection.capture.kept import sampled
from regard.inspection.hooks.call import Call
from regard.inspection.matrix import matrix


def moved(call: Call, found: Chosen) -> float:
    """How far weights of some rows of the call are from those of what is stored, `found`."""
    rows = sampled(call.query.shape[-2])
    exact = chosen(call, found.heads).call
    with off(call.query.device):
        pair = []
        for each in (exact, found.call):
            weights = matrix(each.query, each.key, **each.spec)[(..., rows, slice(None))]
            pair.append(weights if found.shown is None else weights[..., list(found.shown), :, :])
        keys = found.call.key.shape[-2]
        wrong = (pair[0][..., :keys] - pair[1]).abs()
    return float(wrong.max()) if wrong.numel() else 0.0
