"""Engines share the tests: a case that an engine says it cannot do is skipped, with its reason."""

from collections.abc import Generator

import pytest

REFUSED = "engine 'native' cannot do this: "


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    try:
        return (yield)
    except ValueError as error:
        if str(error).startswith(REFUSED):
            pytest.skip(str(error))
        raise
