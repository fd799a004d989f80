"""English to French: a grammar that makes sentence pairs with their alignment, and models that learn from them."""

from regard.lab.translation.experiment import run

__all__ = ["run"]
