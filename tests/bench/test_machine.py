"""The machine and its yardsticks."""

import pytest

from regard.bench.machine import cache_bytes, fma_peak, machine, read_bandwidth


def test_the_machine_has_a_name_and_a_date() -> None:
    here = machine()
    assert here.processor
    assert here.threads >= 1
    assert here.date in str(here)
    assert here.cache_bytes == cache_bytes() > 0


def test_yardsticks_are_plausible() -> None:
    flops, read = fma_peak(0.005), read_bandwidth()
    if flops is None or read is None:
        pytest.skip("the native core is missing")
    assert 1e8 < flops < 1e14
    assert 1e8 < read < 1e13
