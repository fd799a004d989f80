"""Listening: where a model computes attention, how each call is read, and which module makes it."""
