"""Project: queries, keys and values from embeddings, Q = X·W_Q with one token per row."""

from dataclasses import dataclass

from torch import Tensor

from regard.checks import is_float, same_kind, shape
from regard.inspection.explain.case import Case
from regard.inspection.explain.notation import word
from regard.inspection.explain.numbers import Numbers, matrix
from regard.inspection.explain.record import Step


@dataclass(frozen=True, eq=False)
class Projected:
    """Embeddings and the matrices that make queries, keys and values of them; `explain` takes it in their place.

    `x` is (length, width) or (…, length, width); a matrix is (width, d), or (head, width, d).
    """

    x: Tensor
    w_query: Tensor
    w_key: Tensor
    w_value: Tensor
    memory: Tensor | None = None

    @property
    def source(self) -> Tensor:
        """Where keys and values come from."""
        return self.x if self.memory is None else self.memory

    @property
    def query(self) -> Tensor:
        """X·W_Q."""
        return self.x @ self.w_query

    @property
    def key(self) -> Tensor:
        """X·W_K, or memory·W_K."""
        return self.source @ self.w_key

    @property
    def value(self) -> Tensor:
        """X·W_V, or memory·W_V."""
        return self.source @ self.w_value


def project(x: Numbers, w_query: Numbers, w_key: Numbers, w_value: Numbers, memory: Numbers | None = None) -> Projected:
    """Queries from `x`; keys and values from `x` too, or from `memory` (cross attention).

    Tokens are rows, so Q = X·W_Q. Where tokens are written as columns, as in Q = W_Q·X, the same matrices appear
    transposed; for identity matrices the two agree. `torch.nn.Linear` stores the transpose as well.

    >>> identity = [[1, 0], [0, 1]]
    >>> project([[1, 0], [0, 1], [1, 1]], identity, identity, identity).query.tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    projected = Projected(
        matrix("x", x),
        matrix("w_query", w_query),
        matrix("w_key", w_key),
        matrix("w_value", w_value),
        None if memory is None else matrix("memory", memory),
    )
    for name, tokens, weights in (
        ("w_query", ("x", projected.x), projected.w_query),
        ("w_key", _source(projected), projected.w_key),
        ("w_value", _source(projected), projected.w_value),
    ):
        _check(name, *tokens, weights)
    return projected


def _source(projected: Projected) -> tuple[str, Tensor]:
    return ("x", projected.x) if projected.memory is None else ("memory", projected.memory)


def _check(name: str, of: str, tokens: Tensor, weights: Tensor) -> None:
    for each, tensor in ((of, tokens), (name, weights)):
        is_float(each, tensor)
    same_kind({of: tokens, name: weights})
    if not 2 <= tokens.ndim <= 4:
        raise ValueError(f"{of} must have one row per token, (length, width), got shape {shape(tokens)}")
    if weights.ndim not in (2, 3):
        raise ValueError(f"{name} must be a matrix (width of {of}, d), or one per head, got shape {shape(weights)}")
    if tokens.shape[-1] != weights.shape[-2]:
        hint = (
            "; tokens are rows, so it multiplies from the right: transpose it"
            if (tokens.shape[-1] == weights.shape[-1])
            else ""
        )
        raise ValueError(
            f"{name} must have {tokens.shape[-1]} rows, one per column of {of} {shape(tokens)}, "
            f"got shape {shape(weights)}{hint}"
        )
    if tokens.ndim > 2 and weights.ndim > 2 and 1 != tokens.shape[-3] != weights.shape[0] != 1:
        raise ValueError(
            f"{of} {shape(tokens)} and {name} {shape(weights)} have different numbers of heads; "
            f"axes are (batch, head, length, width), so give {of} a head axis of 1 to share it by all heads"
        )


def projection_steps(case: Case, projected: Projected) -> list[Step]:
    """The embeddings and the three products."""
    x, source = _of(case, projected.x), _of(case, projected.source, key_side=True)
    own = projected.memory is None
    row = case.row if own else 0
    inputs = (case.matrix("X", x, case.queries),) + (() if own else (case.matrix("M", source, case.keys),))
    steps = [
        Step(
            "Embeddings",
            None,
            "One row per token." if own else "One row per token: X asks, the memory M answers.",
            inputs,
        )
    ]
    letter = "X" if own else "M"
    for title, what, origin, rows, at, tokens, weights, result in (
        ("Queries", "Q", "X", case.queries, case.row, x, projected.w_query, case.query),
        ("Keys", "K", letter, case.keys, row, source, projected.w_key, case.key),
        ("Values", "V", letter, case.keys, row, source, projected.w_value, case.value),
    ):
        weight = _of(case, weights, key_side=what != "Q").to(case.asked.dtype)
        steps.append(
            Step(
                title,
                word(f"{what} = {origin}·W_{what}", f"{what} = {origin} W_{what}"),
                {
                    "Q": "What each token looks for: its row of X times the matrix W_Q.",
                    "K": "What each token offers to be found by.",
                    "V": "What each token hands over when it is found.",
                }[what],
                (case.matrix(f"W_{what}", weight), case.matrix(what, result, rows)),
                case.matrix_row(rows, at, tokens.to(case.asked.dtype), weight, result),
            )
        )
    return steps


def input_steps(case: Case) -> list[Step]:
    """Queries, keys and values as they were given."""
    tables = (
        case.matrix("Q", case.query, case.queries),
        case.matrix("K", case.key, case.keys),
        case.matrix("V", case.value, case.keys),
    )
    return [Step("Queries, keys, values", None, "One row per token, as given.", tables)]


def _of(case: Case, tensor: Tensor, *, key_side: bool = False) -> Tensor:
    """The (rows, columns) of this batch row and head."""
    tensor = tensor[(None,) * (4 - tensor.ndim)]
    head = case.head // case.asked.plane.group if key_side else case.head
    batch = case.batch if tensor.shape[0] > 1 else 0
    return tensor[batch, head if tensor.shape[1] > 1 else 0]
