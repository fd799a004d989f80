"""Explain: every step of a small attention with its numbers, for any spec.

steps = explain([[1, 0]], [[1, 0], [0, 1]], [[1], [2]], mask=masks.Causal(), query_start=1)
print(steps)                      # for a terminal; steps.markdown(), steps.latex(), steps.html(), steps.to_dict()
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard import checks
from regard.arrays import Array
from regard.engine.request import Request, request
from regard.inspection.explain.case import ExplainedQuery
from regard.inspection.explain.notation import integer, over, word
from regard.inspection.explain.numbers import Numbers, matrix
from regard.inspection.explain.record import Explanation, Matrix, Step, Worked
from regard.inspection.explain.scores import score_steps
from regard.inspection.explain.weights import (
    bias_steps,
    dropout_steps,
    mask_steps,
    normalizer_steps,
    output_steps,
    temperature_steps,
)
from regard.spec.biases import Bias
from regard.spec.dropout import Dropout
from regard.spec.masks import Full, Mask
from regard.spec.normalizers import Normalizer, Softmax
from regard.spec.scores import ScaledDot, Score

__all__ = ["Explanation", "Matrix", "Projected", "Step", "Worked", "explain", "project"]

MOST_ROWS = 32
MOST_WIDTH = 16
MOST_DIGITS = 10


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
    _check_projection("x", projected.x, "w_query", projected.w_query)
    _check_projection(source, projected.source, "w_key", projected.w_key)
    _check_projection(source, projected.source, "w_value", projected.w_value)
    return projected


def _check_projection(of: str, tokens: Tensor, name: str, weights: Tensor) -> None:
    """Refuse a matrix that does not fit the tokens."""
    checks.is_float(of, tokens)
    checks.is_float(name, weights)
    checks.same_kind({of: tokens, name: weights})
    size = checks.shape(weights)
    if not 2 <= tokens.ndim <= 4:
        raise ValueError(f"{of} must have one row per token, (length, width), got shape {checks.shape(tokens)}")
    if weights.ndim not in (2, 3):
        raise ValueError(f"{name} must be a matrix (width of {of}, d), or one per head, got shape {size}")
    if tokens.shape[-1] != weights.shape[-2]:
        fits = tokens.shape[-1] == weights.shape[-1]
        hint = "; tokens are rows, so it multiplies from the right: transpose it" if fits else ""
        raise ValueError(
            f"{name} must have {tokens.shape[-1]} rows, one per column of {of} {checks.shape(tokens)}, "
            f"got shape {size}{hint}"
        )
    if tokens.ndim > 2 and weights.ndim > 2 and 1 != tokens.shape[-3] != weights.shape[0] != 1:
        raise ValueError(
            f"{of} {checks.shape(tokens)} and {name} {size} have different numbers of heads; "
            f"axes are (batch, head, length, width), so give {of} a head axis of 1 to share it by all heads"
        )


def explain(
    query: Numbers | Projected,
    key: Numbers | None = None,
    value: Numbers | None = None,
    *,
    score: Score = ScaledDot(),
    mask: Mask | Tensor | Array | str | None = None,
    bias: Bias | Tensor | Array | None = None,
    temperature: float | Tensor | Array = 1.0,
    normalizer: Normalizer = Softmax(),
    dropout: float | Dropout = 0.0,
    query_start: int | Tensor | Array | None = None,
    query_tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    batch: int = 0,
    head: int = 0,
    row: int = 0,
    digits: int = 4,
    weights_only: bool = False,
) -> Explanation:
    """All steps from query, key and value to the output, with every number and one row worked out.

    The inputs and the spec are those of `attend`; nested lists are taken as float64, NumPy arrays as
    they are. In place of the three,
    `project(x, w_query, w_key, w_value)` starts from embeddings. One batch row and head is explained, and the query
    `row` of it is worked out digit by digit. The result is the one of `attend(…, engine="reference")`, bit for bit.
    `weights_only` ends with the weights: it needs no value, and takes vectors of any width, such as those of a model,
    which it does not print if they are wide.

    >>> identity = [[1, 0], [0, 1]]
    >>> steps = explain(project([[1, 0], [0, 1], [1, 1]], identity, identity, identity))
    >>> print(steps.steps[5].worked[0].math.text)
    1/√2 = 0.7071
    """
    projected = query if isinstance(query, Projected) else None
    inputs = _inputs(query, key, value, weights_only)
    with torch.no_grad():
        call = request(
            *inputs,
            score=score,
            mask=mask,
            bias=bias,
            temperature=temperature,
            normalizer=normalizer,
            dropout=dropout,
            query_start=query_start,
            aux=(),
        )
        _check_sizes(call, projected, weights_only)
        own = projected is not None and projected.memory is None
        if own and key_tokens is None:
            key_tokens = query_tokens
        case = ExplainedQuery(
            call,
            _index("batch", batch, call.plane.batch),
            _index("head", head, call.plane.heads),
            _index("row", row, call.plane.queries),
            _labels("query_tokens", query_tokens, call.plane.queries, "x" if own else "q"),
            _labels("key_tokens", key_tokens, call.plane.keys, "x" if own else "k"),
            checks.whole("digits", digits, 1, MOST_DIGITS),
        )
        _check_finite(case)
        return _explanation(case, projected, weights_only)


def _inputs(
    query: Numbers | Projected, key: Numbers | None, value: Numbers | None, weights_only: bool
) -> tuple[Tensor, Tensor, Tensor]:
    if isinstance(query, Projected):
        if key is not None or value is not None:
            raise TypeError("explain(project(...)) makes key and value itself; pass them only with a query")
        return query.query, query.key, query.value
    if weights_only and key is not None and value is None:
        keys = matrix("key", key)
        return matrix("query", query), keys, keys[..., :1]
    if key is None or value is None:
        raise TypeError(
            "explain takes query, key and value, or project(x, w_query, w_key, w_value) in their place; "
            f"{'key' if key is None else 'value'} is missing"
        )
    return matrix("query", query), matrix("key", key), matrix("value", value)


def _check_sizes(call: Request, projected: Projected | None, weights_only: bool) -> None:
    """Refuse what no reader could follow."""
    plane = call.plane
    for what, size in (("queries", plane.queries), ("keys", plane.keys)):
        if not 1 <= size <= MOST_ROWS:
            raise ValueError(
                f"explain shows every number, for 1 to {MOST_ROWS} {what}; got {size}. "
                "Cut the inputs, such as query[..., :8, :], or use attend for the result alone"
            )
    widths = {} if weights_only else {"query": call.query, "key": call.key, "value": call.value}
    if projected is not None:
        widths |= {"x": projected.x, "memory": projected.source}
    widths |= {f"the score's {name}": tensor for name, tensor in call.score.parameters.items()}
    for what, tensor in widths.items():
        if tensor.shape[-1] > MOST_WIDTH:
            raise ValueError(
                f"explain shows every number of vectors up to width {MOST_WIDTH}; {what} has {tensor.shape[-1]}. "
                "Project to fewer dimensions, or use attend for the result alone"
            )


def _check_finite(case: ExplainedQuery) -> None:
    """Refuse NaN and infinities, but for a score or bias of −inf, which hides its pair."""
    for name, tensor in (("query", case.query), ("key", case.key), ("value", case.value)):
        for at, column in (~tensor.isfinite()).nonzero().tolist():
            raise ValueError(
                f"explain needs finite numbers, got {float(tensor[at, column])} in {name} at row {at}, column {column}"
            )
    logits = case.stages.logits
    for query, key in (~logits.isfinite()).nonzero().tolist():
        raise ValueError(
            f"explain needs finite numbers, the logit of query {query} and key {key} is {float(logits[query, key])}; "
            "scale the inputs down"
        )


def _index(name: str, value: object, size: int) -> int:
    """A number from 0 to size − 1."""
    index = checks.whole(name, value)
    if not 0 <= index < size:
        raise ValueError(f"{name} must be 0 to {size - 1}, got {index}")
    return index


def _labels(name: str, tokens: Sequence[str] | None, size: int, letter: str) -> tuple[str, ...]:
    """The tokens, or numbered names where there are none."""
    if tokens is None:
        return tuple(f"{letter}{index}" for index in range(size))
    if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):
        raise TypeError(f"{name} must be a list of strings, one per row")
    if len(tokens) != size:
        raise ValueError(f"{name} must name each of the {size} rows, got {len(tokens)}")
    return tuple(tokens)


def _explanation(case: ExplainedQuery, projected: Projected | None, weights_only: bool) -> Explanation:
    call = case.request
    if projected is None and weights_only:
        steps = [_query_and_key_step(case)]
    elif projected is None:
        tables = [("Q", case.query, case.queries), ("K", case.key, case.keys), ("V", case.value, case.keys)]
        given = tuple(case.matrix(*table) for table in tables)
        steps = [Step("Queries, keys, values", None, "One row per token, as given.", given)]
    else:
        steps = _projection_steps(case, projected)
    steps += score_steps(case, call.score)
    name = word("S") if call.bias is None else word("L")
    steps += bias_steps(case) + mask_steps(case, name)
    heated = temperature_steps(case, name)
    steps += heated + normalizer_steps(case, over(name, word("τ", r"\tau")) if heated else name)
    steps += dropout_steps(case) + ([] if weights_only else output_steps(case))
    sizes = f"{_count(len(case.queries), 'query', 'queries')}, {_count(len(case.keys), 'key', 'keys')}"
    return Explanation(
        title=f"Attention step by step: {sizes}",
        notes=tuple(_notes(case, projected)),
        row_label=case.queries[case.row],
        steps=tuple(steps),
        weights=case.over_pairs("A", case.stages.weights, hide=True),
        output=Matrix(word("O"), ())
        if weights_only
        else case.matrix("O", case.stages.output.to(call.query.dtype), case.queries),
        digits=case.digits,
    )


def _query_and_key_step(case: ExplainedQuery) -> Step:
    """Queries and keys as given, or how wide they are where that is too much to print."""
    width = case.query.shape[-1]
    if width <= MOST_WIDTH:
        tables = (case.matrix("Q", case.query, case.queries), case.matrix("K", case.key, case.keys))
        return Step("Queries and keys", None, "One row per token, as given.", tables)
    sentence = f"Each token has a query and a key of {width} numbers, too many to print; their products follow."
    return Step("Queries and keys", None, sentence)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _notes(case: ExplainedQuery, projected: Projected | None) -> list[str]:
    """What a reader must know before the first number."""
    call = case.request
    parts = [f"score {call.score!r}", f"normalizer {call.normalizer!r}"]
    if type(call.mask) is not Full:
        parts.append(f"mask {call.mask!r}")
    if call.bias is not None:
        parts.append(f"bias {call.bias!r}")
    if call.dropout is not None:
        parts.append(f"dropout {call.dropout!r}")
    notes = [", ".join(parts) + "."]
    if call.plane.batch > 1 or call.plane.heads > 1:
        shared = "" if call.plane.group == 1 else f"; {call.plane.group} query heads share each key head"
        notes.append(
            f"Shown are batch row {case.batch} of {call.plane.batch} and head {case.head} of {call.plane.heads}, "
            f"counted from 0{shared}."
        )
    if projected is not None:
        notes.append(
            "Tokens are rows, so Q = X·W_Q; where they are written as columns, Q = W_Q·X, the matrices are transposed. "
            "For identity matrices the two agree."
        )
    positional = call.score.positional or call.mask.positional or (call.bias is not None and call.bias.positional)
    if positional and case.i[0] != case.j[0]:
        notes.append(f"The first query stands at position {integer(case.i[0])}, the first key at {integer(case.j[0])}.")
    kind = str(call.dtype).removeprefix("torch.")
    notes.append(
        f"Computed in {kind}, shown to {_count(case.digits, 'decimal', 'decimals')}: arithmetic with the numbers "
        "as shown may differ in the last one."
    )
    return notes


def _projection_steps(case: ExplainedQuery, projected: Projected) -> list[Step]:
    """The embeddings and the three products."""
    x, source = _rows_of(case, projected.x), _rows_of(case, projected.source, key_side=True)
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
        weight = _rows_of(case, weights, key_side=name != "Q").to(case.request.dtype)
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


def _rows_of(case: ExplainedQuery, tensor: Tensor, *, key_side: bool = False) -> Tensor:
    """The (rows, columns) of this batch row and head."""
    tensor = tensor[(None,) * (4 - tensor.ndim)]
    head = case.head // case.request.plane.group if key_side else case.head
    batch = case.batch if tensor.shape[0] > 1 else 0
    return tensor[batch, head if tensor.shape[1] > 1 else 0]
