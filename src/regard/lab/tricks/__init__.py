"""Tricks: ways to compute the same attention, weighed and counted, and generation with and without a cache."""

from regard.lab.tricks.experiment import run

__all__ = ["run"]
