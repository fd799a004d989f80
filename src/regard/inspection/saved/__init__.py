"""Saved: matrices and captures as safetensors files, mapped instead of read."""

from regard.inspection.saved.load import load

__all__ = ["load"]
