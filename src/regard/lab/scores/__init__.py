"""The six score functions: what they cost, what they learn, and when to use which."""

from regard.lab.scores.experiment import run

__all__ = ["run"]
