"""What temperatures are used for, tried on small trained models."""

from regard.lab.temperature.experiment import run

__all__ = ["run"]
