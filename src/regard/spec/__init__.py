"""Spec: what is computed. `register` makes a part of one's own known to files and compiled graphs."""

from regard.spec.serialize import register

__all__ = ["register"]
