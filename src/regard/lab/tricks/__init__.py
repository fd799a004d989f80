"""Tricks: ways to compute the same attention, weighed and counted, and generation with and without a cache."""
