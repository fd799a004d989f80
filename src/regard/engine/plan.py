"""plan: what a call would do, without doing it: which engine and why, how much work, how much memory."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack, overload

from torch import Tensor

from regard.engine.attend import ENGINES, choose, module
from regard.engine.memory import MemoryCounter, dense_bytes, output_bytes, tiled_bytes
from regard.engine.request import Request, Spec, request
from regard.engine.tiled.engine import lower_tiled
from regard.engine.tiled.tiles import TiledCall, TileSpan
from regard.spec.biases import Bias
from regard.spec.dropout import Dropout
from regard.spec.masks import Mask
from regard.spec.masks.count import visible_pairs
from regard.spec.normalizers import Normalizer, Softmax
from regard.spec.scores import ScaledDot, Score
from regard.spec.scores.modified import Wrapped

if TYPE_CHECKING:
    from regard.engine.ring import Ring
    from regard.engine.ring.plan import RingPlan


@dataclass(frozen=True)
class Plan:
    """What `attend` would do.

    `flops` counts the matrix products of the forward pass, two per multiply-add, exactly as torch's own counter does
    (which does not see the native engine's). `computed_pairs` of `native` come in whole vectors, so a few past the
    last key may be among them.
    `bytes` is the most memory that the forward pass holds beyond inputs and outputs; None where only torch knows. Both
    are those of finite inputs: NaN and Inf take a longer way. `visible_pairs` is an upper bound unless `visible_exact`.
    """

    engine: str
    reasons: dict[str, str]
    visible_pairs: int
    visible_exact: bool
    computed_pairs: int
    all_pairs: int
    flops: int
    bytes: int | None
    second_order: str

    def __str__(self) -> str:
        visible = f"{'' if self.visible_exact else 'at most '}{self.visible_pairs:,}"
        memory = "only torch knows"
        if self.bytes is not None:
            memory = f"{scaled(self.bytes, 1024, BYTES)} beyond inputs and outputs"
        lines = [
            f"engine          {self.engine}",
            f"visible pairs   {visible} of {self.all_pairs:,} ({_share(self.visible_pairs, self.all_pairs)})",
            f"computed pairs  {self.computed_pairs:,} ({_share(self.computed_pairs, self.all_pairs)})",
            f"forward         {scaled(self.flops, 1000, FLOPS)} in products",
            f"memory          {memory}",
            f"second order    {self.second_order}",
        ]
        lines += [f"{f'not {name}':<16}{why}" for name, why in self.reasons.items()]
        return "\n".join(lines)


SCALARS = 256  # bytes for the single numbers that torch makes in passing
FLOPS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP")
BYTES = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


@overload
def plan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    aux: tuple[str, ...] | str = ...,
    engine: str = ...,
    **spec: Unpack[Spec],
) -> Plan: ...


@overload
def plan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    aux: tuple[str, ...] | str = ...,
    engine: "Ring",
    bandwidth: float | None = ...,
    flops: float | None = ...,
    **spec: Unpack[Spec],
) -> "RingPlan": ...


@overload
def plan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    aux: tuple[str, ...] | str = ...,
    engine: str = ...,
    world: int,
    layout: str = ...,
    bandwidth: float | None = ...,
    flops: float | None = ...,
    **spec: Unpack[Spec],
) -> "RingPlan": ...


def plan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Score = ScaledDot(),
    mask: Mask | Tensor | str | None = None,
    bias: Bias | Tensor | None = None,
    temperature: float | Tensor = 1.0,
    normalizer: Normalizer = Softmax(),
    dropout: float | Dropout = 0.0,
    query_start: int | Tensor | None = None,
    aux: tuple[str, ...] | str = (),
    engine: "str | Ring" = "auto",
    world: int | None = None,
    layout: str = "contiguous",
    bandwidth: float | None = None,
    flops: float | None = None,
) -> "Plan | RingPlan":
    """What `attend` would do with the same arguments: engine, reasons, pairs, work and memory.

    Raises what `attend` would raise. One tile is run to see what it holds; no random number is drawn.

    With `world`, or a `Ring` as the engine, what a ring would do with the whole of these inputs: bytes sent and memory
    of each process, and the time of a step if each sends `bandwidth` bytes and computes `flops` operations a second.

    >>> import torch, regard
    >>> q, k, v = torch.randn(3, 1, 8, 4096, 64)
    >>> regard.plan(q, k, v, mask=regard.masks.local(129)).visible_pairs
    4193792
    """
    with MemoryCounter() as lowering:
        asked = request(
            query,
            key,
            value,
            score=score,
            mask=mask,
            bias=bias,
            temperature=temperature,
            normalizer=normalizer,
            dropout=_unseeded(dropout),
            query_start=query_start,
            aux=aux,
        )
        if world is not None or not isinstance(engine, str):
            from regard.engine.ring.plan import ring_plan

            ring = (world or 0, layout) if isinstance(engine, str) else (engine.world, engine.layout)
            return ring_plan(asked, *ring, bandwidth, flops)
        name = choose(asked, engine)
        if name not in ("sdpa", "flex"):  # the plans of these look at shapes alone
            asked.hold_numbers()
        lowered = lower_tiled(asked) if name == "tiled" else None
    if name in ("native", "flex"):
        return _kernels(asked, name, engine)
    plane = asked.plane
    everything = plane.batch * plane.heads * plane.queries * plane.keys
    visible, exact = visible_pairs(asked.mask, plane)
    held: int | None = None
    if lowered is not None:
        held = tiled_bytes(asked, *lowered, lowering) - output_bytes(asked)
    elif name == "reference":
        held = dense_bytes(asked, lowering) - output_bytes(asked)
    return Plan(
        engine=name,
        reasons=_reasons(asked, name, engine),
        visible_pairs=visible,
        visible_exact=exact,
        computed_pairs=everything if lowered is None else _computed(lowered[0]),
        all_pairs=everything,
        flops=_dense_flops(asked) if lowered is None else _tiled_flops(asked, lowered[0]),
        bytes=None if held is None else max(0, held) + SCALARS,
        second_order=_second_order(name),
    )


def _kernels(asked: Request, name: str, engine: str) -> Plan:
    """An engine with kernels of its own tells what they compute and hold."""
    pairs, held = module(name).cost(asked)
    plane = asked.plane
    visible, exact = visible_pairs(asked.mask, plane)
    return Plan(
        engine=name,
        reasons=_reasons(asked, name, engine),
        visible_pairs=visible,
        visible_exact=exact,
        computed_pairs=pairs,
        all_pairs=plane.batch * plane.heads * plane.queries * plane.keys,
        flops=2 * pairs * (asked.key.shape[-1] + asked.value.shape[-1]) + _prepared(asked),
        bytes=None if held is None else held + SCALARS,
        second_order=_second_order(name),
    )


def _unseeded(dropout: float | Dropout) -> float | Dropout:
    """A rate gets a fixed seed: planning must not move torch's generator, or the next call would drop other weights."""
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)):
        return dropout
    return Dropout(dropout, 0)


def _second_order(name: str) -> str:
    if name == "sdpa":
        return "as torch gives it: none from its fused kernels"
    if name == "flex":
        return "none: FlexAttention has first derivatives only"
    how = "by tiled's formula, " if name == "native" else ""
    return f"correct, {how}in the memory of the dense formula (queries × keys)"


def _reasons(asked: Request, chosen: str, engine: str) -> dict[str, str]:
    """Why each of the other engines will not run, as a sentence."""
    by_name = engine != "auto" or os.environ.get("REGARD_ENGINE", "auto") != "auto"
    found = {}
    for name in ENGINES:
        if name == chosen:
            continue
        why = module(name).supports(asked)
        if why is not None:
            found[name] = f"It cannot do this: {why}."
        elif by_name:
            found[name] = f"It could, but {chosen!r} was asked for by name."
        else:
            found[name] = f"It could, but it runs only when asked for: engine={name!r}."
    return found


def _computed(kernel: TiledCall) -> int:
    """Pairs of all tiles, over all batch rows and heads."""
    total = 0
    for rows, spans in kernel.schedule.outline:
        total += (rows.stop - rows.start) * sum(span.width * span.times for span in spans)
    return kernel.schedule.plane.batch * kernel.schedule.plane.heads * total


def _tiled_flops(asked: Request, kernel: TiledCall) -> int:
    passes = 2 if "received" in asked.aux else 1
    total = 0
    costs: dict[tuple[int, int, int], int] = {}
    for rows, spans in kernel.schedule.outline:
        for span in spans:
            total += passes * _score_flops(asked, kernel, rows, span, costs)
        columns = sum(span.width * span.times for span in spans)
        if spans and not isinstance(asked.normalizer, Softmax):  # whole rows, gaps between the tiles included
            columns = spans[-1].stop - spans[0].start
        total += 2 * (rows.stop - rows.start) * columns * kernel.d_value
    return asked.plane.batch * asked.plane.heads * total + _prepared(asked)


def _score_flops(
    asked: Request, kernel: TiledCall, rows: slice, span: TileSpan, costs: dict[tuple[int, int, int], int]
) -> int:
    """One lane's products of the scores in some tiles. Equal tiles cost the same: anywhere, or on the same diagonal."""
    score, segment = kernel.logits.score, kernel.schedule.segment
    if not asked.score.positional:
        return span.times * score.flops(next(kernel.schedule.tiles(rows, span)).pairs)
    total = 0
    for first in range(span.start, span.stop, segment):
        key = rows.stop - rows.start, span.width, rows.start - first
        if key not in costs:
            costs[key] = score.flops(asked.plane.pairs(rows, slice(first, first + span.width)))
        total += costs[key]
    return total


def _dense_flops(asked: Request) -> int:
    plane, score = asked.plane, asked.score
    while isinstance(score, Wrapped):
        score = score.score
    # the reference writes v · φ(a + b) and the vectors of offsets as sums, which are no matrix products
    pair = 0 if score.form == "sum" else 2 * asked.key.shape[-1]
    pairs = plane.batch * plane.heads * plane.queries * plane.keys
    return pairs * (pair + 2 * asked.value.shape[-1]) + 2 * _prepared(asked)


def _prepared(asked: Request) -> int:
    plane = asked.plane
    queries, keys = plane.batch * plane.heads * plane.queries, plane.batch * plane.kv_heads * plane.keys
    return asked.score.prepare_flops(queries, keys, asked.query.shape[-1], asked.key.shape[-1])


def scaled(number: int, step: int, units: tuple[str, ...]) -> str:
    """A number in the largest unit that leaves it at least 1; each unit is `step` of the one before."""
    size = float(number)
    for unit in units:
        if size < step or unit == units[-1]:
            break
        size /= step
    return f"{size:,.0f} {unit}" if unit == units[0] else f"{size:,.1f} {unit}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "none"
