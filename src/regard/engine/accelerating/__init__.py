"""accelerating: torch's attention functions, answered by regard's engines while a block runs."""

from regard.engine.accelerating.block import accelerating
from regard.engine.accelerating.report import Call, Report

__all__ = ["Call", "Report", "accelerating"]
