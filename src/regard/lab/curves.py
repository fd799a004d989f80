"""Curves from estimates: the mean as a line, its interval as a band."""

from collections.abc import Sequence

from regard.inspection.records import Estimate, Line


def curve(name: str, x: Sequence[float], estimates: Sequence[Estimate]) -> Line:
    """One estimate at each x."""
    low, high = [estimate.low for estimate in estimates], [estimate.high for estimate in estimates]
    return Line(name, x, [estimate.mean for estimate in estimates], low, high)
