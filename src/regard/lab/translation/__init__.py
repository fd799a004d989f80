"""English to French: a grammar that makes sentence pairs with their alignment, and models that learn from them."""
