"""Induction: a small attention-only model that learns to go on with what it has seen before."""

from regard.lab.induction.experiment import run

__all__ = ["run"]
