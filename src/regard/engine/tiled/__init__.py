"""The tiled engine: torch, block by block, with an online softmax and a recomputing backward pass."""

from regard.engine.tiled.engine import NAME, run, supports

__all__ = ["NAME", "run", "supports"]
