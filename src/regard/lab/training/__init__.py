"""Small trainings: resumed after a kill with the same numbers, cached by a hash of what decides them.

A `Task` says what is trained and how; `train` gives it back trained, from the cache if it was trained before.
"""

from regard.lab.training.run import train
from regard.lab.training.task import Task, Trained

__all__ = ["Task", "Trained", "train"]
