"""transformers: `register()` makes `attn_implementation="regard"` valid there."""

from regard.hf.attention import counting
from regard.hf.registry import register, unregister

__all__ = ["counting", "register", "unregister"]
