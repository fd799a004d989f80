"""Steps: the primitive operations that masks, scores and biases lower to.

A part says once what it lowers to (`part.steps(…)`); engines and `explain` read the steps and never the class of the
part. A mask's steps are in postfix order: each of Band … Rule pushes the pairs it shows, AND, OR and NOT combine them.

    class Checkerboard(Mask):
        def steps(self, plane):
            return (BlockTable(1, layout),)  # runs on the native engine and on FlexAttention

Most new parts need no new step. One that does is added here and where steps are read: mask steps in
`engine/native/call.py`, `native/regard.h`, `native/mask.h`, `engine/flex/mods.py` and `inspection/explain/weights.py`;
score steps in `spec/forms.py`, `engine/native/lowering.py`, `native/logits.h`, `native/backward.h`,
`engine/flex/mods.py` and `inspection/explain/scores.py`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from torch import Tensor

Function = Callable[..., Tensor]


# Masks: i and j are absolute positions of query and key. Tensors are on the CPU, or where the mask's are.


@dataclass(frozen=True, eq=False)
class Band:
    """i − before ≤ j ≤ i + after; None leaves that side open."""

    before: int | None
    after: int | None

    @property
    def everything(self) -> bool:
        """Whether it shows every pair."""
        return self.before is None and self.after is None


@dataclass(frozen=True, eq=False)
class DilatedBand:
    """|i − j| ≤ reach, and i − j is a multiple of `step`."""

    reach: int
    step: int


@dataclass(frozen=True, eq=False)
class Below:
    """j < limits, int64 (1,) or (batch,)."""

    limits: Tensor


@dataclass(frozen=True, eq=False)
class Among:
    """i or j is one of `positions`, int64 (n,), rising."""

    positions: Tensor


@dataclass(frozen=True, eq=False)
class SameId:
    """The id of the query row equals that of the key column: int64 (1 or batch, key) and (1 or batch, query)."""

    keys: Tensor
    queries: Tensor


@dataclass(frozen=True, eq=False)
class BlockTable:
    """layout[i // size, j // size]; bool, (batch or 1, head or 1, query block, key block)."""

    size: int
    layout: Tensor


@dataclass(frozen=True, eq=False)
class PairTable:
    """One entry per pair: bool for a mask, float for a bias; (batch or 1, head or 1, query or 1, key or 1)."""

    tensor: Tensor


@dataclass(frozen=True, eq=False)
class Rule:
    """A function of (b, h, i, j) on index tensors; with `rows`, of row and column numbers within the call."""

    fn: Function
    rows: bool = False


@dataclass(frozen=True, eq=False)
class BlockRule:
    """Blocks of rows and columns that are EMPTY, FULL or left to the function of row and column numbers (MIXED)."""

    size: tuple[int, int]
    kinds: Tensor
    fn: Function


class Combine(Enum):
    """How the masks pushed before combine."""

    AND = "and"
    OR = "or"
    NOT = "not"


MaskStep = Band | DilatedBand | Below | Among | SameId | BlockTable | PairTable | Rule | BlockRule | Combine
FULL_STEPS: tuple[MaskStep, ...] = (Band(None, None),)


def shows_everything(steps: tuple[MaskStep, ...]) -> bool:
    """Whether these are the steps of a mask that hides nothing."""
    return len(steps) == 1 and isinstance(steps[0], Band) and steps[0].everything


# Scores: the first step makes a number of a query and a key, those behind it change that number.


@dataclass(frozen=True, eq=False)
class DotProduct:
    """scale · q′·k′. q′ is q, or q · weight; with `unit` both are divided by their lengths. A scale of None is 1/√d."""

    scale: float | None = 1.0
    weight: Tensor | None = None
    unit: bool = False

    @property
    def plain(self) -> bool:
        """Whether q and k are multiplied as they are."""
        return self.weight is None and not self.unit

    def factor(self, width: int) -> float:
        """The scale as a number."""
        return default_scale(width) if self.scale is None else float(self.scale)


@dataclass(frozen=True, eq=False)
class HiddenLayer:
    """v · φ(W₁q + W₂k + b); `phi` names φ."""

    w_query: Tensor
    w_key: Tensor
    v: Tensor
    phi: str
    b: Tensor | None = None


@dataclass(frozen=True, eq=False)
class RelativeDot:
    """scale · ((q + u)·k + (q + v)·r₍ᵢ₋ⱼ₎); entry i − j + R of `keys` is r₍ᵢ₋ⱼ₎. A scale of None is 1/√d."""

    keys: Tensor
    u: Tensor | None
    v: Tensor | None
    scale: float | None


@dataclass(frozen=True, eq=False)
class Cap:
    """cap · tanh(score / cap)."""

    cap: float


@dataclass(frozen=True, eq=False)
class ScoreRule:
    """A function of (score, b, h, i, j)."""

    fn: Function


ScoreStep = DotProduct | HiddenLayer | RelativeDot | Cap | ScoreRule


def default_scale(width: int) -> float:
    """1/√d, and 1 for d = 0."""
    return 1.0 / math.sqrt(width) if width else 1.0


# Biases: each step is added to the score.


@dataclass(frozen=True, eq=False)
class Slopes:
    """−slope · |i − j|, one slope per query head."""

    slopes: Tensor


@dataclass(frozen=True, eq=False)
class OffsetTable:
    """table[i − j + R], offsets beyond ±R take the last entry; (head or 1, 2R + 1).

    With `index` (2R + 1,), offsets share entries: table[index[i − j + R]].
    """

    table: Tensor
    index: Tensor | None = None

    @property
    def reach(self) -> int:
        """R."""
        return (self.table.shape[-1] if self.index is None else len(self.index)) // 2


BiasStep = Slopes | OffsetTable | PairTable


# Normalizers: how a row of logits x becomes weights.


@dataclass(frozen=True, eq=False)
class Exponential:
    """e^x over its sum, in which a sink takes part; the row state is the lse. Parts of the keys can be merged."""


@dataclass(frozen=True, eq=False)
class Threshold:
    """max(x − t, 0); the row state is t."""


@dataclass(frozen=True, eq=False)
class Largest:
    """1 at the first largest x, else 0; the row state is its key."""


NormalizerStep = Exponential | Threshold | Largest
