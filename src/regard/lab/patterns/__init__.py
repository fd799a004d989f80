"""The price of a pattern: what stacked layers can reach, computed and trained."""

from regard.lab.patterns.experiment import run

__all__ = ["run"]
