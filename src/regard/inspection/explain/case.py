"""Case: the one batch row, head and query that an explanation works out, with helpers that write its numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard import checks
from regard.cached import cached_property
from regard.engine import reference
from regard.engine.nonfinite import divide_by_temperature
from regard.engine.request import Request
from regard.inspection.explain import notation
from regard.inspection.explain.notation import Math
from regard.inspection.explain.record import Matrix, Worked
from regard.spec.forms import per_head, weights_times_values
from regard.spec.plane import Pairs
from regard.spec.scores import Score

if TYPE_CHECKING:
    from regard.inspection.explain.project import Projected

MOST_KEYS = 8  # whose arithmetic is written out; all keys are in the tables


@dataclass(frozen=True, eq=False)
class Case:
    """What is explained. `batch` counts all leading axes as one, `head` the query heads, `row` the queries."""

    asked: Request
    batch: int
    head: int
    row: int
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    digits: int

    @cached_property
    def stages(self) -> "Stages":
        """What the engine computes, for all batch rows and heads."""
        return stages(self.asked)

    def pick(self, tensor: Tensor) -> Tensor:
        """The (query, key or width) part of this batch row and head; axes of size 1 are shared by all."""
        tensor = tensor[(None,) * (5 - tensor.ndim)]
        group = self.asked.plane.group
        index = zip((self.batch, self.head // group, self.head % group), tensor.shape[:3], strict=True)
        return tensor[tuple(at if size > 1 else 0 for at, size in index)]

    def pairs(self, tensor: Tensor) -> Tensor:
        """The same, filled up to all (query, key) pairs."""
        return self.pick(tensor).expand(len(self.queries), len(self.keys))

    def parameter(self, tensor: Tensor, axes: int, *, per_key_head: bool = False) -> Tensor:
        """A score's own matrix (2 axes) or vector (1) for this head, whether or not it has one per head."""
        group = 1 if per_key_head else self.asked.plane.group
        split = per_head(tensor.to(self.asked.dtype), axes, self.asked.plane.kv_heads, group, "parameter")
        return self.pick(split) if axes == 2 else self.pick(split.unsqueeze(-2))[0]

    @cached_property
    def query(self) -> Tensor:
        """(query, d_q) in the accumulating precision."""
        return self.pick(self.asked.query).to(self.asked.dtype)

    @cached_property
    def key(self) -> Tensor:
        """(key, d_k)."""
        return self.pick(self.asked.key).to(self.asked.dtype)

    @cached_property
    def value(self) -> Tensor:
        """(key, d_v)."""
        return self.pick(self.asked.value).to(self.asked.dtype)

    def scores(self, score: Score) -> Tensor:
        """The score of every pair by its own formula, (query, key)."""
        dtype = self.asked.dtype
        return self.pairs(score.formula(self.asked.query.to(dtype), self.asked.key.to(dtype), self.plane))

    @property
    def plane(self) -> Pairs:
        """All pairs of the call, as scores, masks and biases take them."""
        return self.asked.plane.all

    @cached_property
    def i(self) -> list[int]:
        """Absolute position of each query."""
        return [int(i) for i in self.pick(self.plane.i)[:, 0]]

    @cached_property
    def j(self) -> list[int]:
        """Absolute position of each key."""
        return [int(j) for j in self.plane.j]

    @cached_property
    def visible(self) -> Tensor:
        """(query, key): which pairs take part."""
        return self.pairs(self.stages.visible)

    @cached_property
    def worked_keys(self) -> list[int]:
        """The keys whose pairs with the worked query are written out: the first, visible or not."""
        return list(range(min(len(self.keys), MOST_KEYS)))

    @cached_property
    def seen_keys(self) -> list[int]:
        """All keys that the worked query sees."""
        return [int(key) for key in self.visible[self.row].nonzero().flatten()]

    @property
    def shortened(self) -> str:
        """What to say where not every key is written out."""
        return f" The first {MOST_KEYS} of {len(self.keys)} keys are worked out." if len(self.keys) > MOST_KEYS else ""

    def number(self, value: float | Tensor) -> Math:
        """One number of a formula."""
        return notation.number(float(value), self.digits)

    def numbers(self, values: Tensor | Sequence[float]) -> list[Math]:
        """Several."""
        return [self.number(value) for value in values]

    def label(self, key: int) -> str:
        """The worked query and this key."""
        return f"{self.queries[self.row]} → {self.keys[key]}"

    def entry(self, rows: Sequence[str], row: int, column: int, width: int) -> str:
        """One number of a row of a matrix; columns count from 1 because the reader does."""
        return f"{rows[row]}, column {column + 1} of {width}"

    def matrix(self, name: Math | str, values: Tensor, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> Matrix:
        """A matrix with labels."""
        numbers = tuple(tuple(map(float, row)) for row in values)
        return Matrix(notation.word(name) if isinstance(name, str) else name, numbers, tuple(rows), tuple(columns))

    def over_pairs(self, name: Math | str, values: Tensor, visible: Tensor | None = None) -> Matrix:
        """A number per pair, queries down and keys across; `None` where not visible."""
        shown = torch.ones_like(values, dtype=torch.bool) if visible is None else visible
        rows = tuple(
            tuple(float(value) if seen else None for value, seen in zip(numbers, sights, strict=True))
            for numbers, sights in zip(values, shown, strict=True)
        )
        return Matrix(notation.word(name) if isinstance(name, str) else name, rows, self.queries, self.keys)

    def products(self, name: Math, left: Tensor, right: Tensor, values: Tensor) -> tuple[Worked, ...]:
        """name = left · right for the worked query and the first keys: left (query, d), right (key, d)."""
        row = self.numbers(left[self.row])
        return tuple(
            Worked(
                self.label(key),
                notation.equals(name, notation.dot(row, self.numbers(right[key])), self.number(values[self.row, key])),
            )
            for key in self.worked_keys
        )

    def matrix_row(
        self, rows: Sequence[str], row: int, left: Tensor, right: Tensor, values: Tensor
    ) -> tuple[Worked, ...]:
        """One row of left · right, number by number: left (rows, d), right (d, columns)."""
        factors = self.numbers(left[row])
        return tuple(
            Worked(
                self.entry(rows, row, column, values.shape[1]),
                notation.equals(
                    notation.dot(factors, self.numbers(right[:, column])), self.number(values[row, column])
                ),
            )
            for column in range(min(values.shape[1], MOST_KEYS))
        )


@dataclass(frozen=True, eq=False)
class Stages:
    """All are (batch, kv head, group, query, key), `output` is (…, query, d_v), `state` (…, query).

    `visible` pairs are hidden by neither mask, score nor bias; `exponents` are the logits over τ, −inf where hidden.
    """

    visible: Tensor
    logits: Tensor
    exponents: Tensor
    weights: Tensor
    state: Tensor
    factors: Tensor | None
    dropped: Tensor
    output: Tensor


def stages(asked: Request) -> Stages:
    """What the reference engine computes, step by step, for finite inputs."""
    pairs = asked.plane.all
    logits, visible = reference.masked_logits(asked)
    exponents = torch.where(visible, divide_by_temperature(logits, asked.temperatures), -torch.inf)
    weights, state = reference.normalize(exponents, asked)
    factors = None if asked.dropout is None else asked.dropout.factors(pairs, weights.dtype)
    dropped = weights if factors is None else weights * factors
    output = weights_times_values(torch.where(visible, dropped, 0.0), asked.value.to(asked.dtype))
    return Stages(visible, logits, exponents, weights, state, factors, dropped, output)


MOST_ROWS = 32
MOST_WIDTH = 16
MOST_DIGITS = 10


def check_sizes(asked: Request, projected: "Projected | None") -> None:
    """Refuse what no reader could follow."""
    plane = asked.plane
    for what, size in (("queries", plane.queries), ("keys", plane.keys)):
        if not 1 <= size <= MOST_ROWS:
            raise ValueError(
                f"explain shows every number, for 1 to {MOST_ROWS} {what}; got {size}. "
                "Cut the inputs, such as query[..., :8, :], or use attend for the result alone"
            )
    widths = {"query": asked.query, "key": asked.key, "value": asked.value}
    if projected is not None:
        widths |= {"x": projected.x, "memory": projected.source}
    widths |= {f"the score's {name}": tensor for name, tensor in asked.score.parameters.items()}
    for what, tensor in widths.items():
        if tensor.shape[-1] > MOST_WIDTH:
            raise ValueError(
                f"explain shows every number of vectors up to width {MOST_WIDTH}; {what} has {tensor.shape[-1]}. "
                "Project to fewer dimensions, or use attend for the result alone"
            )


def check_finite(case: Case) -> None:
    """Refuse NaN and infinities, but for a score or bias of −inf, which hides its pair."""
    for name, tensor in (("query", case.query), ("key", case.key), ("value", case.value)):
        bad = (~tensor.isfinite()).nonzero()
        if len(bad):
            at, column = bad[0].tolist()
            raise ValueError(
                f"explain needs finite numbers, got {float(tensor[at, column])} in {name} at row {at}, column {column}"
            )
    logits = case.pairs(case.stages.logits)
    bad = (~logits.isfinite()).nonzero()
    if len(bad):
        at, column = bad[0].tolist()
        raise ValueError(
            f"explain needs finite numbers, the logit of query {at} and key {column} is {float(logits[at, column])}; "
            "scale the inputs down"
        )


def index(name: str, value: object, size: int) -> int:
    """A number from 0 to size − 1."""
    index = checks.whole(name, value)
    if not 0 <= index < size:
        raise ValueError(f"{name} must be 0 to {size - 1}, got {index}")
    return index


def labels(name: str, tokens: Sequence[str] | None, size: int, letter: str) -> tuple[str, ...]:
    """The tokens, or numbered names where there are none."""
    if tokens is None:
        return tuple(f"{letter}{index}" for index in range(size))
    if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):
        raise TypeError(f"{name} must be a list of strings, one per row")
    if len(tokens) != size:
        raise ValueError(f"{name} must name each of the {size} rows, got {len(tokens)}")
    return tuple(tokens)


def decimals(digits: object) -> int:
    """How many decimals are shown."""
    if checks.whole("digits", digits, least=1) > MOST_DIGITS:
        raise ValueError(f"digits must be at most {MOST_DIGITS}, got {digits}")
    return checks.whole("digits", digits)
