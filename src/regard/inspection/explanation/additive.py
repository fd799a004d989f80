"""Steps of the scores that add before a nonlinearity: v · φ(W₁q + W₂k + b)."""

from torch import Tensor

from regard.inspection.explanation.case import MOST_KEYS, Case
from regard.inspection.explanation.notation import Math, call, dot, equals, plus, word
from regard.inspection.explanation.record import Step, Worked
from regard.spec.scores.additive import SumScore
from regard.spec.scores.base import ACTIVATIONS


def sum_steps(case: Case, score: SumScore, name: Math) -> list[Step]:
    """Two projections, their sum through φ for every pair, and the weighted sum of the hidden units."""
    w_query, w_key = case.parameter(score.w_query, 2), case.parameter(score.w_key, 2, per_key_head=True)
    a, b = case.query @ w_query.mT, case.key @ w_key.mT
    offset = None if score.offset is None else case.parameter(score.offset, 1)
    hidden = ACTIVATIONS[score.phi](a[case.row] + b if offset is None else a[case.row] + b + offset)
    return [
        _projection(
            case, "Queries to the hidden layer", ("a", "W₁", "q"), case.queries, case.row, case.query, w_query, a
        ),
        _projection(case, "Keys to the hidden layer", ("b", "W₂", "k"), case.keys, _first(case), case.key, w_key, b),
        _hidden_units(case, score, a, b, offset, hidden),
        _scores(case, score, name, hidden),
    ]


def _first(case: Case) -> int:
    """The key of the pair that is worked out in full: the first that the query sees."""
    return case.seen_keys[0] if case.seen_keys else 0


def _projection(
    case: Case,
    title: str,
    names: tuple[str, str, str],
    rows: tuple[str, ...],
    row: int,
    inputs: Tensor,
    matrix: Tensor,
    result: Tensor,
) -> Step:
    out, weight, vector = names
    latex = weight.replace("₁", "_1").replace("₂", "_2")
    return Step(
        title,
        word(f"{out} = {weight}·{vector}", f"{out} = {latex} {vector}"),
        f"{weight} maps each vector to {matrix.shape[0]} hidden units, once per vector and not once per pair. Each "
        f"number is a row of {weight} times the vector.",
        (case.matrix(word(weight, latex), matrix), case.matrix(out, result, rows)),
        case.matrix_row(rows, row, inputs, matrix.mT, result),
    )


def _hidden_units(case: Case, score: SumScore, a: Tensor, b: Tensor, offset: Tensor | None, hidden: Tensor) -> Step:
    key = _first(case)
    terms = [a[case.row], b[key]] + ([] if offset is None else [offset])
    worked = tuple(
        Worked(
            f"{case.label(key)}, unit {unit + 1} of {len(hidden[key])}",
            equals(call(score.phi, plus([case.number(term[unit]) for term in terms])), case.number(hidden[key, unit])),
        )
        for unit in range(min(len(hidden[key]), MOST_KEYS))
    )
    inside = "a + b" if offset is None else "a + b + c"
    tables = [case.matrix("h", hidden, [case.label(at) for at in range(len(case.keys))])]
    if offset is not None:
        tables.insert(0, case.matrix("c", offset.unsqueeze(0)))
    more = "" if offset is None else " c is the layer's own offset, the same for every pair."
    return Step(
        "Hidden units of each pair",
        Math(f"h = {score.phi}({inside})", f"h = {call(score.phi, word(inside)).latex}"),
        f"For every pair the two are added and put through {score.phi}; the table shows the pairs of the worked query, "
        f"the lines one pair in full.{more}",
        tuple(tables),
        worked,
    )


def _scores(case: Case, score: SumScore, name: Math, hidden: Tensor) -> Step:
    v, values = case.parameter(score.v, 1), case.scores(score)
    factors = case.numbers(v)
    worked = tuple(
        Worked(
            case.label(key),
            equals(
                word("v·h", r"v \cdot h"), dot(factors, case.numbers(hidden[key])), case.number(values[case.row, key])
            ),
        )
        for key in case.worked_keys
    )
    return Step(
        "Scores: the hidden units weighted",
        equals(name, word("v·h", r"v \cdot h")),
        "The vector v weighs the hidden units; their sum is the score." + case.shortened,
        (case.matrix("v", v.unsqueeze(0)), case.over_pairs(name, values)),
        worked,
    )
