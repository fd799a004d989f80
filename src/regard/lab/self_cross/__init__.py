"""Self against cross attention: laws that hold for any weights, and what a trained model makes of either."""

from regard.lab.self_cross.experiment import run

__all__ = ["run"]
