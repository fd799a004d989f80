"""plan: what a call would do, without doing it: which engine and why, how much work, how much memory."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.engine.attend import ENGINES, choose
from regard.engine.logits import Logits
from regard.engine.request import Request, request
from regard.engine.schedule import Schedule
from regard.engine.tiled import logits_of
from regard.spec.masks.count import count_visible
from regard.spec.normalizers import Softmax
from regard.spec.scores import ScaledDot

DEFAULTS: dict[str, Any] = {
    "score": ScaledDot(),
    "mask": None,
    "bias": None,
    "temperature": 1.0,
    "normalizer": Softmax(),
    "dropout": 0.0,
    "query_start": None,
    "aux": (),
}


@dataclass(frozen=True)
class Plan:
    """`flops` counts matrix products of the forward pass, two per multiply-add, as torch's own counter does;
    `bytes` is the memory beyond inputs and outputs that the forward pass needs at most."""

    engine: str
    reasons: dict[str, str]
    visible_pairs: int
    computed_pairs: int
    all_pairs: int
    flops: int
    bytes: int
    second_order: str

    def __str__(self) -> str:
        lines = [
            f"engine          {self.engine}",
            f"visible pairs   {self.visible_pairs:,} of {self.all_pairs:,} ({_share(self.visible_pairs, self.all_pairs)})",
            f"computed pairs  {self.computed_pairs:,} ({_share(self.computed_pairs, self.all_pairs)})",
            f"forward         {self.flops / 1e9:,.3f} GFLOP, {self.bytes / 2**20:,.1f} MiB beyond inputs and outputs",
            f"second order    {self.second_order}",
        ]
        lines += [f"not {name:<12}{why}" for name, why in self.reasons.items()]
        return "\n".join(lines)


def plan(query: Tensor, key: Tensor, value: Tensor, *, engine: str = "auto", **spec: Any) -> Plan:
    """What `attend` would do with the same arguments."""
    unknown = set(spec) - set(DEFAULTS)
    if unknown:
        raise TypeError(f"plan takes the arguments of attend; it does not know {', '.join(sorted(unknown))}")
    asked = request(query, key, value, **{**DEFAULTS, **spec})
    name = choose(asked, engine)
    logits = logits_of(asked)
    schedule = Schedule.of(asked.plane, asked.mask, logits.tile_width, not isinstance(asked.normalizer, Softmax))
    plane = asked.plane
    lanes = plane.batch * plane.heads
    everything = lanes * plane.queries * plane.keys
    tiled = name == "tiled"
    areas = [tile.pairs.area for _, tiles in schedule.strips for tile in tiles]
    return Plan(
        engine=name,
        reasons=_reasons(asked, name, engine),
        visible_pairs=count_visible(asked.mask, plane),
        computed_pairs=lanes * sum(areas) if tiled else everything,
        all_pairs=everything,
        flops=_tiled_flops(asked, logits, schedule) if tiled else _dense_flops(asked),
        bytes=_tiled_bytes(asked, logits, schedule) if tiled else _dense_bytes(asked, logits),
        second_order=_second_order(name),
    )


def _second_order(name: str) -> str:
    if name == "sdpa":
        return "as torch gives it: none from its fused kernels"
    return "correct; memory of the dense formula, queries × keys"


def _reasons(asked: Request, chosen: str, engine: str) -> dict[str, str]:
    found = {}
    for name, module in ENGINES.items():
        if name == chosen:
            continue
        why = module.supports(asked)
        found[name] = why if why is not None else f"by name only: engine={name!r}"
        if why is None and engine not in ("auto", name):
            found[name] = f"{chosen} was asked for"
    return found


def _prepared(asked: Request) -> int:
    plane = asked.plane
    queries, keys = plane.batch * plane.heads * plane.queries, plane.batch * plane.kv_heads * plane.keys
    return asked.score.prepare_flops(queries, keys, asked.query.shape[-1], asked.key.shape[-1])


def _dense_flops(asked: Request) -> int:
    plane = asked.plane
    pair = asked.score.flops(asked.query.shape[-1], asked.key.shape[-1]) + 2 * asked.value.shape[-1]
    return plane.batch * plane.heads * plane.queries * plane.keys * pair + _prepared(asked)


def _tiled_flops(asked: Request, logits: Logits, schedule: Schedule) -> int:
    plane, d_value = asked.plane, asked.value.shape[-1]
    total = sum(logits.score.flops(tile.pairs) for _, tiles in schedule.strips for tile in tiles)
    if isinstance(asked.normalizer, Softmax):
        total += sum(2 * tile.pairs.area * d_value for _, tiles in schedule.strips for tile in tiles)
    else:
        for rows, tiles in schedule.strips:
            width = tiles[-1].pairs.columns.stop - tiles[0].pairs.columns.start if tiles else 0
            total += 2 * (rows.stop - rows.start) * width * d_value
    return plane.batch * plane.heads * total + _prepared(asked)


def _tiled_bytes(asked: Request, logits: Logits, schedule: Schedule) -> int:
    """Copies made once (linear in the length) and what one strip holds."""
    plane, item = asked.plane, asked.dtype.itemsize
    lanes = plane.batch * plane.heads
    d_value = asked.value.shape[-1]
    once = 0
    for operand, source in zip(logits.operands, (asked.query, asked.key), strict=False):
        if operand.tensor.data_ptr() != source.data_ptr():
            once += operand.tensor.numel() * item
    rows = lanes * plane.queries * item
    once += 2 * rows * (6 + d_value) + rows * 8  # every strip's rows, and all of them joined
    largest = max((tile.pairs.area for _, tiles in schedule.strips for tile in tiles), default=0)
    held = 5 + logits.tile_width + (6 if asked.dropout is not None else 0)
    if not isinstance(asked.normalizer, Softmax):
        widest = max(
            ((tiles[-1].pairs.columns.stop - tiles[0].pairs.columns.start) for _, tiles in schedule.strips if tiles),
            default=0,
        )
        largest, held = schedule.height * widest, held + 10
    return once + held * lanes * largest * item


def _dense_bytes(asked: Request, logits: Logits) -> int:
    plane = asked.plane
    cells = plane.batch * plane.heads * plane.queries * plane.keys
    return cells * asked.dtype.itemsize * (6 + 2 * logits.score.tile_width)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "none"
