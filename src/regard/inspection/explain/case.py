"""ExplainedQuery: the batch row, head and query that an explanation works out, with helpers that write its numbers."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.cached import cached_property
from regard.engine import reference
from regard.engine.nonfinite import divide_by_temperature
from regard.engine.request import Request
from regard.inspection.explain import notation
from regard.inspection.explain.notation import Math, equals, word
from regard.inspection.explain.record import Matrix, Step, Worked
from regard.spec.forms import per_head, weights_times_values
from regard.spec.part import Part
from regard.spec.scores import Score

MOST_KEYS = 8  # whose arithmetic is written out; all keys are in the tables

Line = Callable[[int], Sequence[Math]]  # the sides of a key's equation, without the number that they are equal to


@dataclass(frozen=True, eq=False)
class Stages:
    """What the reference engine computes for one batch row and head: (query, key) each, `output` is (query, d_v).

    `visible` pairs are hidden by neither mask, score nor bias; `exponents` are the logits over τ, −inf where hidden;
    `state` is the normalizer's state of each row, (query, 1).
    """

    visible: Tensor
    logits: Tensor
    exponents: Tensor
    weights: Tensor
    state: Tensor
    factors: Tensor | None
    dropped: Tensor
    output: Tensor


@dataclass(frozen=True, eq=False)
class ExplainedQuery:
    """What is explained. `batch` counts all leading axes as one, `head` the query heads, `row` the queries."""

    request: Request
    batch: int
    head: int
    row: int
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    digits: int

    @cached_property
    def stages(self) -> Stages:
        """The reference engine's formula, step by step, for finite inputs."""
        request = self.request
        logits, visible = reference.masked_logits(request)
        exponents = torch.where(visible, divide_by_temperature(logits, request.temperatures), -torch.inf)
        weights, state = reference.normalize(exponents, request)
        factors = None if request.dropout is None else request.dropout.factors(request.plane.all, weights.dtype)
        dropped = weights if factors is None else weights * factors
        output = weights_times_values(torch.where(visible, dropped, 0.0), request.value.to(request.dtype))
        return Stages(
            visible=self.pairs(visible),
            logits=self.pairs(logits),
            exponents=self.pairs(exponents),
            weights=self.pairs(weights),
            state=self.pick(state.unsqueeze(-1)),
            factors=None if factors is None else self.pairs(factors),
            dropped=self.pairs(dropped),
            output=self.pick(output),
        )

    def pick(self, tensor: Tensor) -> Tensor:
        """The (query, key or width) part of this batch row and head; axes of size 1 are shared by all."""
        tensor = tensor[(None,) * (5 - tensor.ndim)]
        group = self.request.plane.group
        index = zip((self.batch, self.head // group, self.head % group), tensor.shape[:3], strict=True)
        return tensor[tuple(at if size > 1 else 0 for at, size in index)]

    def pairs(self, tensor: Tensor) -> Tensor:
        """The same, expanded to all (query, key) pairs."""
        return self.pick(tensor).expand(len(self.queries), len(self.keys))

    def parameter(self, tensor: Tensor, axes: int, *, per_key_head: bool = False) -> Tensor:
        """A score's own matrix (2 axes) or vector (1) for this head, whether or not it has one per head."""
        group = 1 if per_key_head else self.request.plane.group
        split = per_head(tensor.to(self.request.dtype), axes, self.request.plane.kv_heads, group, "parameter")
        kv_head, member = divmod(self.head, self.request.plane.group)
        return split[kv_head if len(split) > 1 else 0, member if split.shape[1] > 1 else 0]

    @cached_property
    def query(self) -> Tensor:
        """(query, d_q) in the accumulating precision."""
        return self.pick(self.request.query).to(self.request.dtype)

    @cached_property
    def key(self) -> Tensor:
        """(key, d_k)."""
        return self.pick(self.request.key).to(self.request.dtype)

    @cached_property
    def value(self) -> Tensor:
        """(key, d_v)."""
        return self.pick(self.request.value).to(self.request.dtype)

    def scores(self, score: Score) -> Tensor:
        """The score of every pair by its own formula, (query, key)."""
        query, key = (tensor.to(self.request.dtype) for tensor in (self.request.query, self.request.key))
        return self.pairs(score.formula(query, key, self.request.plane.all))

    @cached_property
    def i(self) -> list[int]:
        """Absolute position of each query."""
        return [int(i) for i in self.pick(self.request.plane.all.i)[:, 0]]

    @cached_property
    def j(self) -> list[int]:
        """Absolute position of each key."""
        return [int(j) for j in self.request.plane.all.j]

    @cached_property
    def worked_keys(self) -> list[int]:
        """The keys whose pairs with the worked query are written out: the first, visible or not."""
        return list(range(min(len(self.keys), MOST_KEYS)))

    @cached_property
    def visible_keys(self) -> list[int]:
        """All keys that the worked query sees."""
        return [int(key) for key in self.stages.visible[self.row].nonzero().flatten()]

    @property
    def shortened(self) -> str:
        """What to say where not every key is written out."""
        return f" The first {MOST_KEYS} of {len(self.keys)} keys are worked out." if len(self.keys) > MOST_KEYS else ""

    def number(self, value: float | Tensor) -> Math:
        """One number of a formula."""
        return notation.number(float(value), self.digits)

    def numbers(self, values: Iterable[float | Tensor]) -> list[Math]:
        """Several."""
        return [self.number(value) for value in values]

    def entries(self, values: Tensor, keys: Iterable[int]) -> list[Math]:
        """The numbers of the worked query and these keys."""
        return [self.number(values[self.row, key]) for key in keys]

    def label(self, key: int) -> str:
        """The worked query and this key."""
        return f"{self.queries[self.row]} → {self.keys[key]}"

    def matrix(self, name: Math | str, values: Tensor, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> Matrix:
        """A matrix with labels."""
        numbers = tuple(tuple(map(float, row)) for row in values)
        return Matrix(word(name) if isinstance(name, str) else name, numbers, tuple(rows), tuple(columns))

    def over_pairs(self, name: Math | str, values: Tensor, *, hide: bool = False) -> Matrix:
        """A number per pair, queries down and keys across; with `hide`, None for hidden pairs."""
        table = self.matrix(name, values, self.queries, self.keys)
        if not hide:
            return table
        visible = self.stages.visible.tolist()
        rows = (
            tuple(value if shown else None for value, shown in zip(row, marks, strict=True))
            for row, marks in zip(table.values, visible, strict=True)
        )
        return Matrix(table.name, tuple(rows), table.rows, table.columns)

    def lines(self, values: Tensor, line: Line, keys: Iterable[int] | None = None) -> tuple[Worked, ...]:
        """The equation of the worked query and each key; its last side is the number of the pair in `values`."""
        return tuple(
            Worked(self.label(key), equals(*line(key), self.number(values[self.row, key])))
            for key in (self.worked_keys if keys is None else keys)
        )

    def dot_line(self, name: Math, vector: Tensor, others: Tensor) -> Line:
        """name = vector · others[key]."""
        factors = self.numbers(vector)
        return lambda key: [name, notation.dot(factors, self.numbers(others[key]))]

    def matrix_row(
        self, rows: Sequence[str], row: int, left: Tensor, right: Tensor, values: Tensor
    ) -> tuple[Worked, ...]:
        """One row of left · right, number by number: left (rows, d), right (d, columns). Columns count from 1."""
        factors, width = self.numbers(left[row]), values.shape[1]
        return tuple(
            Worked(
                f"{rows[row]}, column {column + 1} of {width}",
                equals(notation.dot(factors, self.numbers(right[:, column])), self.number(values[row, column])),
            )
            for column in range(min(width, MOST_KEYS))
        )

    def pair_step(
        self,
        title: str,
        name: Math,
        right: Math,
        sentence: str,
        values: Tensor,
        line: Line,
        *tables: Matrix,
        worked: Sequence[Worked] = (),
        hide: bool = False,
    ) -> Step:
        """A step name = right that gives each pair a number, with the equations of the first keys.

        `tables` and `worked` come before those of the pairs. With `hide`, hidden pairs are left out.
        """
        keys = self.visible_keys[:MOST_KEYS] if hide else self.worked_keys
        return Step(
            title,
            equals(name, right),
            sentence + self.shortened,
            (*tables, self.over_pairs(name, values, hide=hide)),
            (*worked, *self.lines(values, line, keys)),
        )

    def step_of(self, kind: str, part: Part, name: Math, sentence: str, table: Matrix) -> Step:
        """A step for a part whose primitive steps are unknown: its `symbols` and its numbers."""
        formula = None if part.symbols is None else equals(name, word(*part.symbols))
        return Step(titled(kind, part), formula, sentence, (table,))


def titled(kind: str, part: Part) -> str:
    """The title of a part's step."""
    return f"{kind}: {part.title}" if part.title else kind
