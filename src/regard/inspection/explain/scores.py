"""Steps of a score: what each primitive step computes on the way; the values are the score's own."""

import torch
from torch import Tensor

from regard.inspection.explain.case import MOST_KEYS, ExplainedQuery
from regard.inspection.explain.notation import (
    Math,
    both,
    call,
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
_PRODUCT = word("Q·Kᵀ", r"Q K^{\top}")


def score_steps(case: ExplainedQuery, score: Score, depth: int = 0) -> list[Step]:
    """From query and key to the scores S; the score inside another is S₁, the one inside that S₂."""
    name = subscripted("S", depth)
    if isinstance(score, Wrapped):
        return [*score_steps(case, score.score, depth + 1), _changed(case, score, name, subscripted("S", depth + 1))]
    match () if score.symbols else score.steps():
        case (DotProduct(unit=True, weight=None) as step,):
            return _cosine(case, score, step, name)
        case (DotProduct(plain=True, scale=1.0),):
            return [_dot(case, score, name)]
        case (DotProduct(plain=True) as step,):
            return _scaled(case, score, step, name)
        case (DotProduct(unit=False, scale=1.0, weight=Tensor() as weight),):
            return _general(case, score, weight, name)
        case (HiddenLayer() as step,):
            return _hidden_layer(case, score, step, name)
        case (RelativeDot() as step,):
            return _relative(case, score, step, name)
    sentence = f"The scores of {score!r}, by its own formula."
    return [case.step_of("Scores", score, name, sentence, case.over_pairs(name, case.scores(score)))]


def _changed(case: ExplainedQuery, score: Wrapped, name: Math, inner: Math) -> Step:
    """The step from a score to the one that is made of it."""
    before, values = case.scores(score.score)[case.row], case.scores(score)
    match score.step:
        case Cap() as step:
            limit, cap = word("cap", r"\text{cap}"), case.number(step.cap)
            return case.pair_step(
                "Soft cap",
                name,
                times(limit, call("tanh", over(inner, limit))),
                f"The scores are bent so that none passes ±{cap.text}; small ones hardly change.",
                values,
                lambda key: [times(cap, call("tanh", over(case.number(before[key]), cap)))],
            )
        case ScoreRule() as step:
            label = getattr(step.fn, "__name__", type(step.fn).__name__)
            i = case.i[case.row]
            function = word(f"fn({inner.text}, b, h, i, j)", rf"\operatorname{{fn}}({inner.latex}, b, h, i, j)")
            return case.pair_step(
                "Changed by a function",
                name,
                function,
                f"The function {label} changes each score, given its batch row b, head h and positions i and j.",
                values,
                lambda key: [call("fn", *case.numbers([before[key], case.batch, case.head, i, case.j[key]]))],
            )
    return Step("Scores", None, f"The scores of {score!r}.", (case.over_pairs(name, values),))


def _dot(case: ExplainedQuery, score: Score, name: Math) -> Step:
    return case.pair_step(
        "Scores: dot products",
        name,
        _PRODUCT,
        "Each query is multiplied with each key, number by number, and the products are added: large where the two "
        "point the same way.",
        case.scores(score),
        case.dot_line(_DOT, case.query[case.row], case.key),
    )


def _scaled(case: ExplainedQuery, score: Score, step: DotProduct, name: Math) -> list[Step]:
    products = case.scores(Dot())
    row, width = case.numbers(products[case.row]), case.query.shape[-1]
    first = case.pair_step(
        "Dot products",
        _PRODUCT,
        _PRODUCT,
        "Each query is multiplied with each key, number by number, and the products are added.",
        products,
        case.dot_line(_DOT, case.query[case.row], case.key),
    )
    if step.scale is None and width:
        right = over(_PRODUCT, root(word("d")))
        sentence = (
            f"The dot products are divided by √d = √{width} = {number(width**0.5, case.digits).text}, d the width of a "
            "query; without it their spread would grow with √d."
        )
        scaled = [over(each, root(word(str(width)))) for each in row]
    else:
        factor = case.number(step.factor(width))
        right = times(_PRODUCT, word("scale", r"\text{scale}"))
        sentence = f"The dot products are multiplied by the scale {factor.text}."
        scaled = [times(each, factor) for each in row]
    second = case.pair_step(
        "Scores: scaling",
        name,
        right,
        sentence,
        case.scores(score),
        lambda key: [scaled[key]],
    )
    return [first, second]


def _general(case: ExplainedQuery, score: Score, matrix: Tensor, name: Math) -> list[Step]:
    weight = case.parameter(matrix, 2)
    turned = case.query @ weight
    first = Step(
        "Queries through W",
        word("Q·W", "Q W"),
        "A learned matrix W turns each query into the space of the keys, so the two may differ in meaning and width.",
        (case.matrix("W", weight), case.matrix(word("Q·W", "Q W"), turned, case.queries)),
        case.matrix_row(case.queries, case.row, case.query, weight, turned),
    )
    second = case.pair_step(
        "Scores: general",
        name,
        word("Q·W·Kᵀ", r"Q W K^{\top}"),
        "The turned queries are multiplied with the keys.",
        case.scores(score),
        case.dot_line(word("qW·k", r"qW \cdot k"), turned[case.row], case.key),
    )
    return [first, second]


def _cosine(case: ExplainedQuery, score: Score, step: DotProduct, name: Math) -> list[Step]:
    tables, worked = [], []
    for symbol, vectors, labels, rows in (
        ("q", case.query, case.queries, [case.row]),
        ("k", case.key, case.keys, case.worked_keys),
    ):
        length = word(f"‖{symbol}‖", rf"\lVert {symbol} \rVert")
        lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
        direction = word(symbol + "\N{COMBINING CIRCUMFLEX ACCENT}", rf"\hat {symbol}")
        tables += [case.matrix(length, lengths, labels), case.matrix(direction, unit(vectors), labels)]
        for row in rows:
            squares = plus([square(each) for each in case.numbers(vectors[row])])
            worked.append(Worked(labels[row], equals(length, root(squares), case.number(lengths[row]))))
    first = Step(
        "Lengths and directions",
        word("q̂ = q/‖q‖, k̂ = k/‖k‖", r"\hat q = \frac{q}{\lVert q \rVert}, \quad \hat k = \frac{k}{\lVert k \rVert}"),
        "Each vector is divided by its length, so only its direction counts; a zero vector stays zero."
        + case.shortened,
        tuple(tables),
        tuple(worked),
    )
    query, key = unit(case.query), unit(case.key)
    cosines, values, factor = query @ key.mT, case.scores(score), step.factor(case.query.shape[-1])
    right, sentence = word("Q̂·K̂ᵀ", r"\hat Q \hat K^{\top}"), "The cosine of the angle between query and key"
    lines = case.lines(cosines, case.dot_line(word("q̂·k̂", r"\hat q \cdot \hat k"), query[case.row], key))
    if factor != 1:
        scale, unscaled = case.number(factor), case.numbers(cosines[case.row])
        right = word("scale·Q̂·K̂ᵀ", r"\text{scale} \cdot \hat Q \hat K^{\top}")
        sentence += f", times the scale {scale.text}"
        scaled = case.lines(values, lambda key: [times(scale, unscaled[key])])
        lines = tuple(Worked(one.label, both(one.math, two.math)) for one, two in zip(lines, scaled, strict=True))
    table = case.over_pairs(name, values)
    return [first, Step("Scores: cosines", equals(name, right), f"{sentence}.{case.shortened}", (table,), lines)]


def _hidden_layer(case: ExplainedQuery, score: Score, step: HiddenLayer, name: Math) -> list[Step]:
    """Two projections, their sum through φ for every pair, and the weighted sum of the hidden units."""
    w_query, w_key = case.parameter(step.w_query, 2), case.parameter(step.w_key, 2, per_key_head=True)
    a, b, v = case.query @ w_query.mT, case.key @ w_key.mT, case.parameter(step.v, 1)
    terms, inside, tables, sentence = [a[case.row].expand_as(b), b], "a + b", [], ""
    if step.b is not None:
        offset = case.parameter(step.b, 1)
        terms, inside, tables = [*terms, offset.expand_as(b)], "a + b + c", [case.matrix("c", offset.unsqueeze(0))]
        sentence = " c is the layer's own offset, the same for every pair."
    hidden = ACTIVATIONS[step.phi](sum(terms[1:], terms[0]))
    key = case.visible_keys[0] if case.visible_keys else 0  # of the pair that is worked out in full
    units = len(hidden[key])
    worked = tuple(
        Worked(
            f"{case.label(key)}, unit {at + 1} of {units}",
            equals(call(step.phi, plus(case.numbers(each[key, at] for each in terms))), case.number(hidden[key, at])),
        )
        for at in range(min(units, MOST_KEYS))
    )
    product = word("v·h", r"v \cdot h")
    return [
        _projection(case, "Queries", ("a", "W₁", "q"), case.queries, case.row, case.query, w_query, a),
        _projection(case, "Keys", ("b", "W₂", "k"), case.keys, key, case.key, w_key, b),
        Step(
            "Hidden units of each pair",
            Math(f"h = {step.phi}({inside})", f"h = {call(step.phi, word(inside)).latex}"),
            f"For every pair the two are added and put through {step.phi}; the table shows the pairs of the worked "
            f"query, the lines one pair in full.{sentence}",
            (*tables, case.matrix("h", hidden, [case.label(at) for at in range(len(case.keys))])),
            worked,
        ),
        case.pair_step(
            "Scores: the hidden units weighted",
            name,
            product,
            "The vector v weighs the hidden units; their sum is the score.",
            case.scores(score),
            case.dot_line(product, v, hidden),
            case.matrix("v", v.unsqueeze(0)),
        ),
    ]


def _projection(
    case: ExplainedQuery,
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
        f"{title} to the hidden layer",
        word(f"{out} = {weight}·{vector}", f"{out} = {latex} {vector}"),
        f"{weight} maps each vector to {matrix.shape[0]} hidden units, once per vector and not once per pair. Each "
        f"number is a row of {weight} times the vector.",
        (case.matrix(word(weight, latex), matrix), case.matrix(out, result, rows)),
        case.matrix_row(rows, row, inputs, matrix.mT, result),
    )


def _relative(case: ExplainedQuery, score: Score, step: RelativeDot, name: Math) -> list[Step]:
    """(q + u) · k, then (q + v) · r₍ᵢ₋ⱼ₎, then their sum times the scale."""
    table = case.parameter(step.keys, 2)
    reach = (table.shape[0] - 1) // 2
    i, j = (torch.tensor(places, dtype=torch.int64, device=table.device) for places in (case.i, case.j))
    offsets = i.view(-1, 1) - j
    vectors = table[offsets.clamp(-reach, reach) + reach]
    content_query, left, content_note, content_tables = _with_vector(case, "u", step.u)
    by_content = word(f"{left}·k", rf"{left} \cdot k")
    content = content_query @ case.key.mT
    place_query, left, place_note, place_tables = _with_vector(case, "v", step.v)
    by_place = word(f"{left}·r", rf"{left} \cdot r")
    place = (place_query.unsqueeze(1) * vectors).sum(-1)
    labels = [f"{case.label(key)}: i − j = {integer(int(offset))}" for key, offset in enumerate(offsets[case.row])]
    factor = default_scale(case.query.shape[-1]) if step.scale is None else step.scale
    scale, total = case.number(factor), word("C + P")
    sums = [plus(case.numbers(pair)) for pair in zip(content[case.row], place[case.row], strict=True)]
    if factor != 1:
        total = word("scale·(C + P)", r"\text{scale} \cdot (C + P)")
        sums = [times(scale, each) for each in sums]
    return [
        case.pair_step(
            "Content",
            word("C"),
            by_content,
            f"How well the contents match: query times key{content_note}.",
            content,
            case.dot_line(by_content, content_query[case.row], case.key),
            *content_tables,
        ),
        case.pair_step(
            "Position",
            word("P"),
            word(by_place.text + "₍ᵢ₋ⱼ₎", by_place.latex + "_{i-j}"),
            f"How well the distance fits: query times a learned vector r for the offset i − j{place_note}. "
            f"Offsets beyond ±{reach} share the last vector. The first table shows r for the pairs of the worked "
            "query.",
            place,
            case.dot_line(by_place, place_query[case.row], vectors[case.row]),
            *place_tables,
            case.matrix("r", vectors[case.row], labels),
        ),
        case.pair_step(
            "Scores: content and position",
            name,
            total,
            f"The two parts are added and multiplied by the scale {scale.text}.",
            case.scores(score),
            lambda key: [sums[key]],
        ),
    ]


def _with_vector(
    case: ExplainedQuery, letter: str, vector: Tensor | None
) -> tuple[Tensor, str, str, tuple[Matrix, ...]]:
    """The queries with a learned vector added, their symbol, what the sentence says of it, and its table."""
    if vector is None:
        return case.query, "q", "", ()
    added = case.parameter(vector, 1)
    note = f", with the same vector {letter} added to every query"
    return case.query + added, f"(q + {letter})", note, (case.matrix(letter, added.unsqueeze(0)),)
