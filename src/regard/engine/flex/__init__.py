"""The flex engine: every spec of product form as a call of torch's FlexAttention."""

from regard.engine.flex.engine import NAME, cost, run, supports

__all__ = ["NAME", "cost", "run", "supports"]
