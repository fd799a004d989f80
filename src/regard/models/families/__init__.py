"""Families of models: how the folders that others write become modules of `regard.nn`."""
