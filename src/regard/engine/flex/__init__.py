"""The flex engine: every spec of product form as a call of torch's FlexAttention."""

from regard.engine.flex.engine import NAME, run, supports

__all__ = ["NAME", "run", "supports"]
