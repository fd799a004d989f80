"""The step of the bias: what each term adds to the scores, and why."""

from collections.abc import Callable
from typing import Any

import torch

from regard.inspection.explanation.case import Case
from regard.inspection.explanation.notation import (
    Math,
    absolute,
    equals,
    integer,
    minus,
    negated,
    plus,
    subscripted,
    times,
    word,
)
from regard.inspection.explanation.record import Step, Worked
from regard.spec.biases import T5, ALiBi, Bias, Dense, Distance


def bias_steps(case: Case) -> list[Step]:
    """One step per term of the bias, then the sum with the scores."""
    if case.asked.bias is None:
        return []
    terms = case.asked.bias.terms()
    names = [word("B")] if len(terms) == 1 else [subscripted("B", at + 1) for at in range(len(terms))]
    steps = [_BUILDERS.get(type(term), _other)(case, term, name) for term, name in zip(terms, names, strict=True)]
    return [*steps, _sum(case, names)]


def _values(case: Case, bias: Bias) -> torch.Tensor:
    return case.pairs(bias.values(case.plane).to(case.asked.dtype))


def _alibi(case: Case, bias: ALiBi, name: Math) -> Step:
    values, slope = _values(case, bias), case.number(bias.slopes[case.head])
    i = case.number(case.i[case.row])
    worked = tuple(
        Worked(
            case.label(key),
            equals(
                negated(times(slope, absolute(minus(i, case.number(case.j[key]))))),
                case.number(values[case.row, key]),
            ),
        )
        for key in case.worked_keys
    )
    return Step(
        "Bias: ALiBi",
        equals(name, word("−slope·|i − j|", r"-\text{slope} \cdot |i - j|")),
        f"The further apart query and key stand, the more is taken off; the slope of head {case.head} is {slope.text}."
        + case.shortened,
        (case.over_pairs(name, values),),
        worked,
    )


def _distance(case: Case, bias: Distance, name: Math) -> Step:
    reach = bias.table.shape[-1] // 2
    offsets = [f"i − j = {integer(case.i[case.row] - j)}" for j in case.j]
    why = f"A learned number for each offset i − j; offsets beyond ±{reach} share the last one."
    return _looked_up(case, "Bias: by distance", bias, name, "table[i − j]", why, offsets)


def _t5(case: Case, bias: T5, name: Math) -> Step:
    buckets = bias.bucket(
        torch.tensor([case.i[case.row] - j for j in case.j], device=case.query.device, dtype=torch.int64)
    ).tolist()
    why = (
        "A learned number for each bucket of offsets: near offsets have one each, far ones share, in steps that grow "
        "with the distance."
    )
    labels = [
        f"i − j = {integer(case.i[case.row] - j)}, bucket {bucket}" for j, bucket in zip(case.j, buckets, strict=True)
    ]
    return _looked_up(case, "Bias: T5's buckets", bias, name, "table[bucket(i − j)]", why, labels)


def _looked_up(case: Case, title: str, bias: Bias, name: Math, formula: str, why: str, reasons: list[str]) -> Step:
    values = _values(case, bias)
    worked = tuple(
        Worked(f"{case.label(key)}: {reasons[key]}", equals(name, case.number(values[case.row, key])))
        for key in case.worked_keys
    )
    latex = rf"\text{{{formula.replace('−', '--')}}}"
    return Step(
        title,
        equals(name, word(formula, latex)),
        why + case.shortened,
        (case.over_pairs(name, values),),
        worked,
    )


def _dense(case: Case, bias: Dense, name: Math) -> Step:
    why = "The numbers of a given table, one per pair; −∞ hides a pair."
    return Step("Bias: a table", None, why, (case.over_pairs(name, _values(case, bias)),))


def _other(case: Case, bias: Bias, name: Math) -> Step:
    return Step("Bias", None, f"The values of {bias!r}.", (case.over_pairs(name, _values(case, bias)),))


def _sum(case: Case, names: list[Math]) -> Step:
    terms = [_values(case, term) for term in case.asked.bias.terms()] if case.asked.bias is not None else []
    assert case.stages.bias is not None
    scores, logits = case.pairs(case.stages.scores), case.pairs(case.stages.scores + case.stages.bias)
    worked = tuple(
        Worked(
            case.label(key),
            equals(
                plus([case.number(values[case.row, key]) for values in (scores, *terms)]),
                case.number(logits[case.row, key]),
            ),
        )
        for key in case.worked_keys
    )
    symbols = plus([word("S"), *names])
    return Step(
        "Logits: scores and bias",
        equals(word("L"), symbols),
        "The bias is added to the scores." + case.shortened,
        (case.over_pairs("L", logits),),
        worked,
    )


_BUILDERS: dict[type[Bias], Callable[[Case, Any, Math], Step]] = {
    ALiBi: _alibi,
    Distance: _distance,
    T5: _t5,
    Dense: _dense,
}
