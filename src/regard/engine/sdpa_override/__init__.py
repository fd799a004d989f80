"""SDPA override: inside `accelerating()`, regard's engines answer torch's attention functions."""

from regard.engine.sdpa_override.calls import InterceptedCall, Report
from regard.engine.sdpa_override.override import accelerating

__all__ = ["InterceptedCall", "Report", "accelerating"]
