"""Steps of a score: one builder per kind, with the quantities it goes through; the values are the score's own."""

from collections.abc import Callable
from typing import Any

import torch

from regard.inspection.explanation.additive import sum_steps
from regard.inspection.explanation.case import Case
from regard.inspection.explanation.notation import (
    Math,
    both,
    call,
    equals,
    number,
    over,
    plus,
    root,
    square,
    subscripted,
    times,
    word,
)
from regard.inspection.explanation.record import Step, Worked
from regard.inspection.explanation.relative import relative_steps
from regard.spec.forms import unit
from regard.spec.scores import (
    Additive,
    ConcatMLP,
    Cosine,
    Dot,
    General,
    Modified,
    Relative,
    ScaledDot,
    Score,
    SoftCapped,
)

_DOT = word("q·k", r"q \cdot k")


def score_steps(case: Case, score: Score, depth: int = 0) -> list[Step]:
    """From query and key to the scores S; the score inside another is S₁, the one inside that S₂."""
    name, within = subscripted("S", depth), subscripted("S", depth + 1)
    if type(score) is SoftCapped:
        return [*score_steps(case, score.score, depth + 1), _capped(case, score, name, within)]
    if type(score) is Modified:
        return [*score_steps(case, score.score, depth + 1), _modified(case, score, name, within)]
    # by exact type: a subclass may compute something else
    return _BUILDERS.get(type(score), _other)(case, score, name)


def _dot(case: Case, score: Score, name: Math) -> list[Step]:
    values = case.scores(score)
    return [
        Step(
            "Scores: dot products",
            equals(name, word("Q·Kᵀ", r"Q K^{\top}")),
            "Each query is multiplied with each key, number by number, and the products are added: large where the two "
            "point the same way." + case.shortened,
            (case.over_pairs(name, values),),
            case.products(_DOT, case.query, case.key, values),
        )
    ]


def _scaled(case: Case, score: ScaledDot, name: Math) -> list[Step]:
    raw, values = case.scores(Dot()), case.scores(score)
    width = case.query.shape[-1]
    product = word("Q·Kᵀ", r"Q K^{\top}")
    dots = Step(
        "Dot products",
        product,
        "Each query is multiplied with each key, number by number, and the products are added." + case.shortened,
        (case.over_pairs(product, raw),),
        case.products(_DOT, case.query, case.key, raw),
    )
    factor = case.number(score.factor(width))
    if score.scale is None and width:
        size = root(word(str(width)))
        formula = equals(name, over(product, root(word("d"))))
        why = (
            f"The dot products are divided by √d = √{width} = {number(width**0.5, case.digits).text}, d the width of a "
            "query; without it their spread would grow with √d."
        )
        lines = [over(case.number(raw[case.row, key]), size) for key in case.worked_keys]
    else:
        formula = equals(name, times(product, word("scale", r"\text{scale}")))
        why = f"The dot products are multiplied by the scale {factor.text}."
        lines = [times(case.number(raw[case.row, key]), factor) for key in case.worked_keys]
    return [dots, _mapped(case, "Scores: scaling", formula, why, name, values, lines)]


def _mapped(
    case: Case, title: str, formula: Math, sentence: str, name: Math, values: torch.Tensor, lines: list[Math]
) -> Step:
    """A step that changes each number on its own: `lines` say how, for the worked keys."""
    worked = tuple(
        Worked(case.label(key), equals(line, case.number(values[case.row, key])))
        for key, line in zip(case.worked_keys, lines, strict=True)
    )
    return Step(title, formula, sentence + case.shortened, (case.over_pairs(name, values),), worked)


def _general(case: Case, score: General, name: Math) -> list[Step]:
    values = case.scores(score)
    weight = case.parameter(score.weight, 2)
    turned = case.query @ weight
    first = Step(
        "Queries through W",
        word("Q·W", "Q W"),
        "A learned matrix W turns each query into the space of the keys, so the two may differ in meaning and width.",
        (case.matrix("W", weight), case.matrix(word("Q·W", "Q W"), turned, case.queries)),
        case.matrix_row(case.queries, case.row, case.query, weight, turned),
    )
    second = Step(
        "Scores: general",
        equals(name, word("Q·W·Kᵀ", r"Q W K^{\top}")),
        "The turned queries are multiplied with the keys." + case.shortened,
        (case.over_pairs(name, values),),
        case.products(word("qW·k", r"qW \cdot k"), turned, case.key, values),
    )
    return [first, second]


def _cosine(case: Case, score: Cosine, name: Math) -> list[Step]:
    values = case.scores(score)
    query, key = unit(case.query), unit(case.key)
    lengths = [torch.linalg.vector_norm(vectors, dim=-1) for vectors in (case.query, case.key)]

    def norm(symbol: str, vector: torch.Tensor, length: torch.Tensor) -> Math:
        squares = plus([square(each) for each in case.numbers(vector)])
        return equals(word(f"‖{symbol}‖", rf"\lVert {symbol} \rVert"), root(squares), case.number(length))

    worked = [Worked(case.queries[case.row], norm("q", case.query[case.row], lengths[0][case.row]))]
    worked += [Worked(case.keys[at], norm("k", case.key[at], lengths[1][at])) for at in case.worked_keys]
    first = Step(
        "Lengths and directions",
        word("q̂ = q/‖q‖, k̂ = k/‖k‖", r"\hat q = \frac{q}{\lVert q \rVert}, \quad \hat k = \frac{k}{\lVert k \rVert}"),
        "Each vector is divided by its length, so only its direction counts; a zero vector stays zero."
        + case.shortened,
        (
            case.matrix(word("‖q‖", r"\lVert q \rVert"), lengths[0].unsqueeze(1), case.queries),
            case.matrix(word("q̂", r"\hat q"), query, case.queries),
            case.matrix(word("‖k‖", r"\lVert k \rVert"), lengths[1].unsqueeze(1), case.keys),
            case.matrix(word("k̂", r"\hat k"), key, case.keys),
        ),
        tuple(worked),
    )
    cosines, scale = query @ key.mT, case.number(score.scale)
    formula, why = word("Q̂·K̂ᵀ", r"\hat Q \hat K^{\top}"), "The cosine of the angle between query and key"
    lines = case.products(word("q̂·k̂", r"\hat q \cdot \hat k"), query, key, cosines)
    if score.scale != 1:
        formula = word("scale·Q̂·K̂ᵀ", r"\text{scale} \cdot \hat Q \hat K^{\top}")
        why += f", times the scale {scale.text}"
        scaled = [
            equals(times(scale, case.number(cosines[case.row, at])), case.number(values[case.row, at]))
            for at in case.worked_keys
        ]
        lines = tuple(Worked(line.label, both(line.math, last)) for line, last in zip(lines, scaled, strict=True))
    table = case.over_pairs(name, values)
    return [first, Step("Scores: cosines", equals(name, formula), f"{why}.{case.shortened}", (table,), lines)]


def _capped(case: Case, score: SoftCapped, name: Math, within: Math) -> Step:
    before, values, cap = case.scores(score.score), case.scores(score), case.number(score.cap)
    lines = [times(cap, call("tanh", over(case.number(before[case.row, key]), cap))) for key in case.worked_keys]
    limit = word("cap", r"\text{cap}")
    formula = equals(name, times(limit, call("tanh", over(within, limit))))
    why = f"The scores are bent so that none passes ±{cap.text}; small ones hardly change."
    return _mapped(case, "Soft cap", formula, why, name, values, lines)


def _modified(case: Case, score: Modified, name: Math, within: Math) -> Step:
    before, values = case.scores(score.score), case.scores(score)
    label = getattr(score.fn, "__name__", type(score.fn).__name__)
    i = case.i[case.row]
    lines = [
        call("fn", case.number(before[case.row, key]), *case.numbers([case.batch, case.head, i, case.j[key]]))
        for key in case.worked_keys
    ]
    formula = equals(name, word(f"fn({within.text}, b, h, i, j)", rf"\operatorname{{fn}}({within.latex}, b, h, i, j)"))
    why = f"The function {label} changes each score, given its batch row b, head h and positions i and j."
    return _mapped(case, "Changed by a function", formula, why, name, values, lines)


def _other(case: Case, score: Score, name: Math) -> list[Step]:
    table = case.over_pairs(name, case.scores(score))
    return [Step("Scores", None, f"The scores of {score!r}, by its own formula.", (table,))]


_BUILDERS: dict[type[Score], Callable[[Case, Any, Math], list[Step]]] = {
    Dot: _dot,
    ScaledDot: _scaled,
    General: _general,
    Cosine: _cosine,
    Additive: sum_steps,
    ConcatMLP: sum_steps,
    Relative: relative_steps,
}
