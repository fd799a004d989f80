"""Measured time of masks against the length."""

from collections.abc import Callable, Mapping
from functools import partial

from regard.engine.attend import attend
from regard.engine.native.library import library
from regard.inspection.records import Line, Lines, Table
from regard.lab.draws import normal
from regard.lab.report import Timing
from regard.lab.setting import Setting
from regard.lab.stopwatch import milliseconds
from regard.spec.masks import Mask

WIDTH = 64


def clock(setting: Setting, masks: Mapping[str, Callable[[int], Mask]]) -> Timing:
    """Milliseconds of one forward pass of one head, the best of several taken in turn; on the native engine where it
    was built."""
    lengths = setting.choose(full=(512, 1024, 2048, 4096, 8192), quick=(512, 1024, 2048))
    engine = "tiled" if library() is None else "native"
    generator = setting.generator()
    found = []
    for length in setting.each("n =", lengths):
        query, key, value = (normal(generator, 1, 1, length, WIDTH).float() for _ in range(3))
        works = {name: partial(attend, query, key, value, mask=at(length), engine=engine) for name, at in masks.items()}
        found.append(milliseconds(works, rounds=setting.choose(full=5, quick=3)))
    table = Table(
        ("n", *masks),
        [(length, *times.values()) for length, times in zip(lengths, found, strict=True)],
        f"Milliseconds of a forward pass on the {engine} engine (one head, width {WIDTH}, one thread), best of several",
    )
    lines = [Line(name, lengths, [times[name] for times in found]) for name in masks]
    return Timing((table,), (Lines(lines, "n", "ms", "Measured time", log_x=True, log_y=True),))
