"""Heads: how alike they are, at random and trained, and what each has learned to look at."""
