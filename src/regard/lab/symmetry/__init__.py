"""Symmetry: one projection for queries and keys against two, on random tokens and round a trained circle."""
