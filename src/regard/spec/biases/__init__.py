"""Biases: numbers added to the scores. Gradients reach every table; −inf hides a pair like a mask."""

from regard.spec.biases.base import Bias, Dense, Total
from regard.spec.biases.distance import T5, ALiBi, Distance

__all__ = ["ALiBi", "Bias", "Dense", "Distance", "T5", "Total"]
