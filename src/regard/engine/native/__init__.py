"""The native engine: product-form attention in C++ on the CPU."""

from regard.engine.native.engine import NAME, cost, run, supports

__all__ = ["NAME", "cost", "run", "supports"]
