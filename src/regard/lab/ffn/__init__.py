"""Attention and feed-forward layers, each alone and both together, on tasks that need the one, the other or both."""

from regard.lab.ffn.experiment import run

__all__ = ["run"]
