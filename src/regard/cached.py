"""cached: a property that is computed once and kept, without a lock.

Python 3.11's own holds a lock of its class while it computes, for all instances: threads wait for each other, and a
child of fork waits forever if another thread computed at that moment. Python 3.12 and later have no lock either.
"""

import functools
from typing import Any, TypeVar, overload

T = TypeVar("T")


class cached_property(functools.cached_property[T]):
    """As `functools.cached_property`; two threads may compute it at the same time, and both get the first result."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> "cached_property[T]": ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...

    def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        assert self.attrname is not None
        values = instance.__dict__
        return (
            values[self.attrname] if self.attrname in values else values.setdefault(self.attrname, self.func(instance))
        )
