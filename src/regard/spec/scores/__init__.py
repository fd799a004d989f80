"""Scores: how well a query and a key match."""

from regard.spec.scores.additive import Additive, ConcatMLP
from regard.spec.scores.base import Score
from regard.spec.scores.modified import Modified, SoftCapped
from regard.spec.scores.product import Cosine, Dot, General, Relative, ScaledDot

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
