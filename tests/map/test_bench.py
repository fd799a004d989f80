"""`regard bench map` measures what it names."""

import json

import pytest

from regard.bench import map as measured
from regard.cli import bench
from regard.progress import reporting_to_user


def test_a_small_map_is_measured() -> None:
    steps: list[str] = []
    with reporting_to_user(lambda step, done, total: steps.append(step), "step"):
        found = measured.measure(5000, views=2, heads=1, visitors=2, seconds=0.3)
    assert [screen.side for screen in found.screens] == [1, 2]
    assert all(0 < screen.median <= screen.p95 for screen in found.screens)
    assert found.forward > 0
    assert found.coarse > 0
    assert found.share == found.coarse / found.forward
    assert found.held is not None
    assert found.most is not None
    assert 1e8 < found.held <= found.most
    many = found.visitors
    assert many is not None
    assert many.answers > 0
    assert many.errors == 0
    assert steps[0] == "forward pass"
    assert json.dumps(measured.record(found, found))
    told = measured.table(found)
    assert [row[0] for row in told.rows][:2] == ["one forward pass", "first picture, an estimate"]


def test_percentiles() -> None:
    times = [float(number) for number in range(1, 101)]
    assert measured.percentile(times) == 95.0
    assert measured.percentile([3.0]) == 3.0


def test_one_length_only() -> None:
    import argparse

    with pytest.raises(ValueError, match="at one length, got 5, 6"):
        bench._map(argparse.Namespace(n=[5, 6], quick=True, heads=None, seconds=None, json=None))
