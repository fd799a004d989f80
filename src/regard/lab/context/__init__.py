"""Context: one word in many sentences, and what a model that has read them makes of it."""

from regard.lab.context.experiment import run

__all__ = ["run"]
