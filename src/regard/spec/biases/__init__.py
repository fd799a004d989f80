"""Biases: numbers added to the scores. Gradients reach every table; −inf hides a pair like a mask."""

from regard.spec.biases.base import Bias, Dense, Total
from regard.spec.biases.distance import T5, ALiBi, Distance

__all__ = ["T5", "ALiBi", "Bias", "Dense", "Distance", "Total"]
