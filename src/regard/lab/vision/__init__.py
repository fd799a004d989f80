"""Vision: pictures the package draws itself, and three small models that look at them with attention."""

from regard.lab.vision.experiment import run

__all__ = ["run"]
