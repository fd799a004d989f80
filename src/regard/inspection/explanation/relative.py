"""Steps of the relative score: what the contents say, what the distance says, and their sum."""

import torch
from torch import Tensor

from regard.inspection.explanation.case import Case
from regard.inspection.explanation.notation import Math, equals, integer, plus, times, word
from regard.inspection.explanation.record import Matrix, Step, Worked
from regard.spec.scores.relative import Relative
from regard.spec.steps import default_scale


def relative_steps(case: Case, score: Relative, name: Math) -> list[Step]:
    """(q + u) · k, then (q + v) · r₍ᵢ₋ⱼ₎, then their sum times the scale."""
    by_content, by_place = _shifted(case, score.u), _shifted(case, score.v)
    content = by_content @ case.key.mT
    table = case.parameter(score.keys, 2)
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
            _product("C", "q", "u", score.u, "k"),
            "How well the contents match: query times key" + _added(score.u, "u") + "." + case.shortened,
            (*_vector(case, "u", score.u), case.over_pairs("C", content)),
            case.products(_left("q", "u", score.u, "k"), by_content, case.key, content),
        ),
        Step(
            "Position",
            _product("P", "q", "v", score.v, "r"),
            f"How well the distance fits: query times a learned vector r for the offset i − j{_added(score.v, 'v')}. "
            f"Offsets beyond ±{reach} share the last vector. The first table shows r for the pairs of the worked query."
            + case.shortened,
            (
                *_vector(case, "v", score.v),
                case.matrix(
                    "r", row, [f"{case.label(key)}: i − j = {integer(offset[key])}" for key in range(len(case.keys))]
                ),
                case.over_pairs("P", place),
            ),
            case.products(_left("q", "v", score.v, "r"), by_place, row, place),
        ),
        _total(case, score, name, content, place),
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


def _total(case: Case, score: Relative, name: Math, content: Tensor, place: Tensor) -> Step:
    values = case.scores(score)
    factor = default_scale(case.query.shape[-1]) if score.scale is None else score.scale
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
