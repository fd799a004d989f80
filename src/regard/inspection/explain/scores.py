"""Steps of a score: one builder per kind, with the quantities it goes through; the values are the score's own."""

import torch
from torch import Tensor

from regard.inspection.explain.case import MOST_KEYS, Case
from regard.inspection.explain.notation import (
    Math,
    both,
    call,
    dot,
    equals,
    integer,
    number,
    over,
    plus,
    root,
    square,
    subscripted,
    times,
    word,
)
from regard.inspection.explain.record import Matrix, Step, Worked
from regard.spec.forms import unit
from regard.spec.scores import Dot, Score
from regard.spec.scores.base import ACTIVATIONS
from regard.spec.scores.modified import Wrapped
from regard.spec.steps import Cap, DotProduct, HiddenLayer, RelativeDot, ScoreRule, default_scale

_DOT = word("q·k", r"q \cdot k")


def score_steps(case: Case, score: Score, depth: int = 0) -> list[Step]:
    """From query and key to the scores S; the score inside another is S₁, the one inside that S₂."""
    name, within = subscripted("S", depth), subscripted("S", depth + 1)
    if isinstance(score, Wrapped):
        return [*score_steps(case, score.score, depth + 1), _changed(case, score, name, within)]
    match () if score.symbols else score.steps():
        case (DotProduct(unit=True, weight=None) as step,):
            return _cosine(case, score, step, name)
        case (DotProduct(plain=True, scale=1.0),):
            return _dot(case, score, name)
        case (DotProduct(plain=True) as step,):
            return _scaled(case, score, step, name)
        case (DotProduct(unit=False, scale=1.0, weight=Tensor() as weight),):
            return _general(case, score, weight, name)
        case (HiddenLayer() as step,):
            return sum_steps(case, score, step, name)
        case (RelativeDot() as step,):
            return relative_steps(case, score, step, name)
    formula = None if score.symbols is None else equals(name, word(*score.symbols))
    title = f"Scores: {score.title}" if score.title else "Scores"
    return [
        Step(
            title,
            formula,
            f"The scores of {score!r}, by its own formula.",
            (case.over_pairs(name, case.scores(score)),),
        )
    ]


def _changed(case: Case, score: Wrapped, name: Math, within: Math) -> Step:
    match score.step:
        case Cap() as step:
            return _capped(case, score, step, name, within)
        case ScoreRule() as step:
            return _modified(case, score, step, name, within)
    return Step("Scores", None, f"The scores of {score!r}.", (case.over_pairs(name, case.scores(score)),))


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


def _scaled(case: Case, score: Score, step: DotProduct, name: Math) -> list[Step]:
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
    factor = case.number(step.factor(width))
    if step.scale is None and width:
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


def _general(case: Case, score: Score, matrix: Tensor, name: Math) -> list[Step]:
    values = case.scores(score)
    weight = case.parameter(matrix, 2)
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


def _cosine(case: Case, score: Score, step: DotProduct, name: Math) -> list[Step]:
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
    cosines, factor = query @ key.mT, step.factor(case.query.shape[-1])
    scale = case.number(factor)
    formula, why = word("Q̂·K̂ᵀ", r"\hat Q \hat K^{\top}"), "The cosine of the angle between query and key"
    lines = case.products(word("q̂·k̂", r"\hat q \cdot \hat k"), query, key, cosines)
    if factor != 1:
        formula = word("scale·Q̂·K̂ᵀ", r"\text{scale} \cdot \hat Q \hat K^{\top}")
        why += f", times the scale {scale.text}"
        scaled = [
            equals(times(scale, case.number(cosines[case.row, at])), case.number(values[case.row, at]))
            for at in case.worked_keys
        ]
        lines = tuple(Worked(line.label, both(line.math, last)) for line, last in zip(lines, scaled, strict=True))
    table = case.over_pairs(name, values)
    return [first, Step("Scores: cosines", equals(name, formula), f"{why}.{case.shortened}", (table,), lines)]


def _capped(case: Case, score: Wrapped, step: Cap, name: Math, within: Math) -> Step:
    before, values, cap = case.scores(score.score), case.scores(score), case.number(step.cap)
    lines = [times(cap, call("tanh", over(case.number(before[case.row, key]), cap))) for key in case.worked_keys]
    limit = word("cap", r"\text{cap}")
    formula = equals(name, times(limit, call("tanh", over(within, limit))))
    why = f"The scores are bent so that none passes ±{cap.text}; small ones hardly change."
    return _mapped(case, "Soft cap", formula, why, name, values, lines)


def _modified(case: Case, score: Wrapped, step: ScoreRule, name: Math, within: Math) -> Step:
    before, values = case.scores(score.score), case.scores(score)
    label = getattr(step.fn, "__name__", type(step.fn).__name__)
    i = case.i[case.row]
    lines = [
        call("fn", case.number(before[case.row, key]), *case.numbers([case.batch, case.head, i, case.j[key]]))
        for key in case.worked_keys
    ]
    formula = equals(name, word(f"fn({within.text}, b, h, i, j)", rf"\operatorname{{fn}}({within.latex}, b, h, i, j)"))
    why = f"The function {label} changes each score, given its batch row b, head h and positions i and j."
    return _mapped(case, "Changed by a function", formula, why, name, values, lines)


def sum_steps(case: Case, score: Score, step: HiddenLayer, name: Math) -> list[Step]:
    """Two projections, their sum through φ for every pair, and the weighted sum of the hidden units."""
    w_query, w_key = case.parameter(step.w_query, 2), case.parameter(step.w_key, 2, per_key_head=True)
    a, b = case.query @ w_query.mT, case.key @ w_key.mT
    offset = None if step.b is None else case.parameter(step.b, 1)
    hidden = ACTIVATIONS[step.phi](a[case.row] + b if offset is None else a[case.row] + b + offset)
    return [
        _projection(
            case, "Queries to the hidden layer", ("a", "W₁", "q"), case.queries, case.row, case.query, w_query, a
        ),
        _projection(case, "Keys to the hidden layer", ("b", "W₂", "k"), case.keys, _first(case), case.key, w_key, b),
        _hidden_units(case, step, a, b, offset, hidden),
        _scores(case, score, step, name, hidden),
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


def _hidden_units(case: Case, step: HiddenLayer, a: Tensor, b: Tensor, offset: Tensor | None, hidden: Tensor) -> Step:
    key = _first(case)
    terms = [a[case.row], b[key]] + ([] if offset is None else [offset])
    worked = tuple(
        Worked(
            f"{case.label(key)}, unit {unit + 1} of {len(hidden[key])}",
            equals(call(step.phi, plus([case.number(term[unit]) for term in terms])), case.number(hidden[key, unit])),
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
        Math(f"h = {step.phi}({inside})", f"h = {call(step.phi, word(inside)).latex}"),
        f"For every pair the two are added and put through {step.phi}; the table shows the pairs of the worked query, "
        f"the lines one pair in full.{more}",
        tuple(tables),
        worked,
    )


def _scores(case: Case, score: Score, step: HiddenLayer, name: Math, hidden: Tensor) -> Step:
    v, values = case.parameter(step.v, 1), case.scores(score)
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


def relative_steps(case: Case, score: Score, step: RelativeDot, name: Math) -> list[Step]:
    """(q + u) · k, then (q + v) · r₍ᵢ₋ⱼ₎, then their sum times the scale."""
    by_content, by_place = _shifted(case, step.u), _shifted(case, step.v)
    content = by_content @ case.key.mT
    table = case.parameter(step.keys, 2)
    reach = (table.shape[0] - 1) // 2
    offsets = (
        torch.tensor(case.i, device="cpu", dtype=torch.int64).view(-1, 1)
        - torch.tensor(case.j, device="cpu", dtype=torch.int64)
    ).to(table.device)
    vectors = table[offsets.clamp(-reach, reach) + reach]
    place = (by_place.unsqueeze(1) * vectors).sum(-1)
    row, offset = vectors[case.row], offsets[case.row].tolist()
    return [
        Step(
            "Content",
            _product("C", "q", "u", step.u, "k"),
            "How well the contents match: query times key" + _added(step.u, "u") + "." + case.shortened,
            (*_vector(case, "u", step.u), case.over_pairs("C", content)),
            case.products(_left("q", "u", step.u, "k"), by_content, case.key, content),
        ),
        Step(
            "Position",
            _product("P", "q", "v", step.v, "r"),
            f"How well the distance fits: query times a learned vector r for the offset i − j{_added(step.v, 'v')}. "
            f"Offsets beyond ±{reach} share the last vector. The first table shows r for the pairs of the worked query."
            + case.shortened,
            (
                *_vector(case, "v", step.v),
                case.matrix(
                    "r", row, [f"{case.label(key)}: i − j = {integer(offset[key])}" for key in range(len(case.keys))]
                ),
                case.over_pairs("P", place),
            ),
            case.products(_left("q", "v", step.v, "r"), by_place, row, place),
        ),
        _total(case, score, step, name, content, place),
    ]


def _shifted(case: Case, by: Tensor | None) -> Tensor:
    return case.query if by is None else case.query + case.parameter(by, 1)


def _added(by: Tensor | None, name: str) -> str:
    return "" if by is None else f", with the same vector {name} added to every query"


def _vector(case: Case, name: str, by: Tensor | None) -> tuple[Matrix, ...]:
    return () if by is None else (case.matrix(name, case.parameter(by, 1).unsqueeze(0)),)


def _left(query: str, by: str, vector: Tensor | None, other: str) -> Math:
    left = query if vector is None else f"({query} + {by})"
    return word(f"{left}·{other}", rf"{left} \cdot {other}")


def _product(name: str, query: str, by: str, vector: Tensor | None, other: str) -> Math:
    product = _left(query, by, vector, other)
    if other == "r":
        product = word(product.text + "₍ᵢ₋ⱼ₎", product.latex + "_{i-j}")
    return equals(word(name), product)


def _total(case: Case, score: Score, step: RelativeDot, name: Math, content: Tensor, place: Tensor) -> Step:
    values = case.scores(score)
    factor = default_scale(case.query.shape[-1]) if step.scale is None else step.scale
    scale = case.number(factor)
    formula = word("C + P")
    sums = [plus([case.number(content[case.row, key]), case.number(place[case.row, key])]) for key in case.worked_keys]
    if factor != 1:
        formula = word("scale·(C + P)", r"\text{scale} \cdot (C + P)")
        sums = [times(scale, each) for each in sums]
    worked = tuple(
        Worked(case.label(key), equals(line, case.number(values[case.row, key])))
        for key, line in zip(case.worked_keys, sums, strict=True)
    )
    return Step(
        "Scores: content and position",
        equals(name, formula),
        f"The two parts are added and multiplied by the scale {scale.text}." + case.shortened,
        (case.over_pairs(name, values),),
        worked,
    )
