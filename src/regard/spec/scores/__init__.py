"""Scores: how well a query and a key match."""

from regard.spec.scores.base import Score
from regard.spec.scores.basic import Additive, ConcatMLP, Cosine, Dot, General, Relative, ScaledDot
from regard.spec.scores.modified import Modified, SoftCapped

__all__ = [
    "Additive",
    "ConcatMLP",
    "Cosine",
    "Dot",
    "General",
    "Modified",
    "Relative",
    "ScaledDot",
    "Score",
    "SoftCapped",
]
