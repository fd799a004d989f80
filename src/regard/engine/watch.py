"""Watch: who wants to know how far a long call is."""

from collections.abc import Callable
from contextvars import ContextVar

#: told a few times a second how many units of a long call's step are done, of how many
WATCH: ContextVar[Callable[[int, int], None] | None] = ContextVar("watch", default=None)
