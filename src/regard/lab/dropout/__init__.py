"""Dropout: what is dropped, and a reader of topics that has seen few texts."""
