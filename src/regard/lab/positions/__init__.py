"""Positions: the schemes that tell attention where a token stands, and a task that needs to know it."""

from regard.lab.positions.experiment import run

__all__ = ["run"]
