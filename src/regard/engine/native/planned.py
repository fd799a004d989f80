"""What a native call would compute and hold."""

from ctypes import byref, c_int64
from dataclasses import replace
from typing import Any

from regard.engine.memory import Memory
from regard.engine.native.engine import lowered
from regard.engine.native.library import library
from regard.engine.native.strips import LOOK, height_of
from regard.engine.request import Request
from regard.spec.masks import Full

PAIR = 20  # bytes per pair while a mask's function is evaluated: a few int64


def planned(request: Request) -> tuple[int, int]:
    """Pairs whose logit the forward pass computes, and bytes that it holds beyond inputs and outputs.

    A mask without closed form is planned as if it hid nothing.
    """
    core = library()
    assert core is not None
    open_mask = not request.mask.closed
    asked = replace(request, mask=Full()) if open_mask else request
    core.regard_asked()  # what was needed before this plan
    with Memory() as held:
        native, inputs, _ = lowered(asked, finite=False)
        alive: list[Any] = []
        call = native.call(inputs, alive)
    pairs, workspace = c_int64(), c_int64()
    core.regard_plan(byref(call), byref(pairs), byref(workspace))
    plane = request.plane
    rows = plane.batch * plane.heads * plane.queries * request.dtype.itemsize
    copies = int(request.query.dtype != request.dtype)
    total = core.regard_asked() + held.peak + 3 * rows + copies * rows * request.value.shape[-1]
    if open_mask:
        cells = plane.batch * plane.heads * min(height_of(plane), plane.queries) * plane.keys
        total += cells + PAIR * min(cells, LOOK)
    return pairs.value, total
