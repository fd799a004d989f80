"""Why attention: the same question about something far back, put to attention, a convolution and a recurrent net."""

from regard.lab.why.experiment import run

__all__ = ["run"]
