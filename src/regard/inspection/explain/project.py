"""Project: queries, keys and values from embeddings, Q = X·W_Q with one token per row."""

from dataclasses import dataclass

from torch import Tensor

from regard.checks import is_float, same_kind, shape
from regard.inspection.explain.case import ExplainedQuery
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
    source = "x" if memory is None else "memory"
    _check("x", projected.x, "w_query", projected.w_query)
    _check(source, projected.source, "w_key", projected.w_key)
    _check(source, projected.source, "w_value", projected.w_value)
    return projected


def _check(of: str, tokens: Tensor, name: str, weights: Tensor) -> None:
    """Refuse a matrix that does not fit the tokens."""
    is_float(of, tokens)
    is_float(name, weights)
    same_kind({of: tokens, name: weights})
    if not 2 <= tokens.ndim <= 4:
        raise ValueError(f"{of} must have one row per token, (length, width), got shape {shape(tokens)}")
    if weights.ndim not in (2, 3):
        raise ValueError(f"{name} must be a matrix (width of {of}, d), or one per head, got shape {shape(weights)}")
    if tokens.shape[-1] != weights.shape[-2]:
        fits = tokens.shape[-1] == weights.shape[-1]
        hint = "; tokens are rows, so it multiplies from the right: transpose it" if fits else ""
        raise ValueError(
            f"{name} must have {tokens.shape[-1]} rows, one per column of {of} {shape(tokens)}, "
            f"got shape {shape(weights)}{hint}"
        )
    if tokens.ndim > 2 and weights.ndim > 2 and 1 != tokens.shape[-3] != weights.shape[0] != 1:
        raise ValueError(
            f"{of} {shape(tokens)} and {name} {shape(weights)} have different numbers of heads; "
            f"axes are (batch, head, length, width), so give {of} a head axis of 1 to share it by all heads"
        )


def projection_steps(case: ExplainedQuery, projected: Projected) -> list[Step]:
    """The embeddings and the three products."""
    x, source = _of(case, projected.x), _of(case, projected.source, key_side=True)
    steps = [Step("Embeddings", None, "One row per token.", (case.matrix("X", x, case.queries),))]
    letter, row = "X", case.row
    if projected.memory is not None:
        tables = (*steps[0].tables, case.matrix("M", source, case.keys))
        steps = [Step("Embeddings", None, "One row per token: X asks, the memory M answers.", tables)]
        letter, row = "M", 0
    looks_for = "What each token looks for: its row of X times the matrix W_Q."
    offers, hands_over = "What each token offers to be found by.", "What each token hands over when it is found."
    for title, sentence, name, origin, rows, at, tokens, weights, result in (
        ("Queries", looks_for, "Q", "X", case.queries, case.row, x, projected.w_query, case.query),
        ("Keys", offers, "K", letter, case.keys, row, source, projected.w_key, case.key),
        ("Values", hands_over, "V", letter, case.keys, row, source, projected.w_value, case.value),
    ):
        weight = _of(case, weights, key_side=name != "Q").to(case.request.dtype)
        steps.append(
            Step(
                title,
                word(f"{name} = {origin}·W_{name}", f"{name} = {origin} W_{name}"),
                sentence,
                (case.matrix(f"W_{name}", weight), case.matrix(name, result, rows)),
                case.matrix_row(rows, at, tokens.to(case.request.dtype), weight, result),
            )
        )
    return steps


def input_steps(case: ExplainedQuery) -> list[Step]:
    """Queries, keys and values as they were given."""
    tables = (
        case.matrix("Q", case.query, case.queries),
        case.matrix("K", case.key, case.keys),
        case.matrix("V", case.value, case.keys),
    )
    return [Step("Queries, keys, values", None, "One row per token, as given.", tables)]


def _of(case: ExplainedQuery, tensor: Tensor, *, key_side: bool = False) -> Tensor:
    """The (rows, columns) of this batch row and head."""
    tensor = tensor[(None,) * (4 - tensor.ndim)]
    head = case.head // case.request.plane.group if key_side else case.head
    batch = case.batch if tensor.shape[0] > 1 else 0
    return tensor[batch, head if tensor.shape[1] > 1 else 0]
