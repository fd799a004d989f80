"""SDPA override: inside `accelerating()`, regard's engines answer torch's attention functions."""

from regard.engine.sdpa_override.override import accelerating
from regard.engine.sdpa_override.report import InterceptedCall, Report

__all__ = ["InterceptedCall", "Report", "accelerating"]
