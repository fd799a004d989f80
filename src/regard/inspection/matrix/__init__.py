"""The attention matrix that is never built: a handle, and reductions that stream over it."""

from regard.inspection.matrix.handle import AttentionMatrix, matrix
from regard.inspection.matrix.layers import rollout

__all__ = ["AttentionMatrix", "matrix", "rollout"]
