"""Dropout: what is dropped, and a reader of topics that has seen few texts."""

from regard.lab.dropout.experiment import run

__all__ = ["run"]
