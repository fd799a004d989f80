"""explain: every step of a small attention with its numbers, for any spec."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.engine.request import request
from regard.inspection.explain.biases import bias_steps
from regard.inspection.explain.case import Case, check_finite, check_sizes, decimals, index, labels
from regard.inspection.explain.masks import mask_steps
from regard.inspection.explain.normalizers import dropout_steps, normalizer_steps, output_steps, temperature_steps
from regard.inspection.explain.notation import integer, over, word
from regard.inspection.explain.numbers import Numbers, matrix
from regard.inspection.explain.project import Projected, input_steps, projection_steps
from regard.inspection.explain.record import Explanation
from regard.inspection.explain.scores import score_steps
from regard.spec.biases import Bias
from regard.spec.dropout import Dropout
from regard.spec.masks import Full, Mask
from regard.spec.normalizers import Normalizer, Softmax
from regard.spec.scores import ScaledDot, Score


def explain(
    query: Numbers | Projected,
    key: Numbers | None = None,
    value: Numbers | None = None,
    *,
    score: Score = ScaledDot(),
    mask: Mask | Tensor | str | None = None,
    bias: Bias | Tensor | None = None,
    temperature: float | Tensor = 1.0,
    normalizer: Normalizer = Softmax(),
    dropout: float | Dropout = 0.0,
    query_start: int | Tensor | None = None,
    query_tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    batch: int = 0,
    head: int = 0,
    row: int = 0,
    digits: int = 4,
) -> Explanation:
    """All steps from query, key and value to the output, with every number and one row worked out.

    The inputs and the spec are those of `attend`; nested lists are taken as float64. In place of the three,
    `project(x, w_query, w_key, w_value)` starts from embeddings. One batch row and head is explained, and the query
    `row` of it is worked out digit by digit. The result is the one of `attend(…, engine="reference")`, bit for bit.

    >>> identity = [[1, 0], [0, 1]]
    >>> steps = explain(project([[1, 0], [0, 1], [1, 1]], identity, identity, identity))
    >>> print(steps.steps[5].worked[0].math.text)
    1/√2 = 0.7071
    """
    projected = query if isinstance(query, Projected) else None
    inputs = _inputs(query, key, value)
    with torch.no_grad():
        asked = request(
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
        check_sizes(asked, projected)
        own = projected is not None and projected.memory is None
        if own and key_tokens is None:
            key_tokens = query_tokens
        case = Case(
            asked,
            index("batch", batch, asked.plane.batch),
            index("head", head, asked.plane.heads),
            index("row", row, asked.plane.queries),
            labels("query_tokens", query_tokens, asked.plane.queries, "x" if own else "q"),
            labels("key_tokens", key_tokens, asked.plane.keys, "x" if own else "k"),
            decimals(digits),
        )
        check_finite(case)
        return _explanation(case, projected)


def _inputs(query: Numbers | Projected, key: Numbers | None, value: Numbers | None) -> tuple[Tensor, Tensor, Tensor]:
    if isinstance(query, Projected):
        if key is not None or value is not None:
            raise TypeError("explain(project(...)) makes key and value itself; pass them only with a query")
        return query.query, query.key, query.value
    if key is None or value is None:
        raise TypeError(
            "explain takes query, key and value, or project(x, w_query, w_key, w_value) in their place; "
            f"{'key' if key is None else 'value'} is missing"
        )
    return matrix("query", query), matrix("key", key), matrix("value", value)


def _explanation(case: Case, projected: Projected | None) -> Explanation:
    asked = case.asked
    steps = input_steps(case) if projected is None else projection_steps(case, projected)
    steps += score_steps(case, asked.score)
    name = word("S") if asked.bias is None else word("L")
    steps += bias_steps(case) + mask_steps(case, name)
    heated = temperature_steps(case, name)
    steps += heated + normalizer_steps(case, over(name, word("τ", r"\tau")) if heated else name)
    steps += dropout_steps(case) + output_steps(case)
    sizes = f"{_count(len(case.queries), 'query', 'queries')}, {_count(len(case.keys), 'key', 'keys')}"
    return Explanation(
        title=f"Attention step by step: {sizes}",
        notes=tuple(_notes(case, projected)),
        row_label=case.queries[case.row],
        steps=tuple(steps),
        weights=case.over_pairs("A", case.pairs(case.stages.weights), case.visible),
        output=case.matrix("O", case.pick(case.stages.output).to(asked.query.dtype), case.queries),
        digits=case.digits,
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _notes(case: Case, projected: Projected | None) -> list[str]:
    """What a reader must know before the first number."""
    asked = case.asked
    parts = [f"score {asked.score!r}", f"normalizer {asked.normalizer!r}"]
    if type(asked.mask) is not Full:
        parts.append(f"mask {asked.mask!r}")
    if asked.bias is not None:
        parts.append(f"bias {asked.bias!r}")
    if asked.dropout is not None:
        parts.append(f"dropout {asked.dropout!r}")
    notes = [", ".join(parts) + "."]
    if asked.plane.batch > 1 or asked.plane.heads > 1:
        shared = "" if asked.plane.group == 1 else f"; {asked.plane.group} query heads share each key head"
        notes.append(
            f"Shown are batch row {case.batch} of {asked.plane.batch} and head {case.head} of {asked.plane.heads}, "
            f"counted from 0{shared}."
        )
    if projected is not None:
        notes.append(
            "Tokens are rows, so Q = X·W_Q; where they are written as columns, Q = W_Q·X, the matrices are transposed. "
            "For identity matrices the two agree."
        )
    positional = asked.score.positional or asked.mask.positional or (asked.bias is not None and asked.bias.positional)
    if positional and case.i[0] != case.j[0]:
        notes.append(f"The first query stands at position {integer(case.i[0])}, the first key at {integer(case.j[0])}.")
    kind = str(asked.dtype).removeprefix("torch.")
    notes.append(
        f"Computed in {kind}, shown to {_count(case.digits, 'decimal', 'decimals')}: arithmetic with the numbers "
        "as shown may differ in the last one."
    )
    return notes
