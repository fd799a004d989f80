"""accelerating: torch's attention functions, answered by regard's engines while a block runs."""

from regard.engine.sdpa_override.block import accelerating
from regard.engine.sdpa_override.report import Call, Report

__all__ = ["Call", "Report", "accelerating"]
