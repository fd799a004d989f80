"""The step of the bias: what each term adds to the scores, and why."""

import torch

from regard.inspection.explain.case import Case
from regard.inspection.explain.notation import (
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
from regard.inspection.explain.record import Step, Worked
from regard.spec.biases import Bias
from regard.spec.steps import OffsetTable, PairTable, Slopes


def bias_steps(case: Case) -> list[Step]:
    """One step per term of the bias, then the sum with the scores."""
    if case.asked.bias is None:
        return []
    terms = case.asked.bias.terms()
    names = [word("B")] if len(terms) == 1 else [subscripted("B", at + 1) for at in range(len(terms))]
    steps = [_term(case, term, name) for term, name in zip(terms, names, strict=True)]
    return [*steps, _sum(case, names)]


def _values(case: Case, bias: Bias) -> torch.Tensor:
    return case.pairs(bias.values(case.plane).to(case.asked.dtype))


def _term(case: Case, bias: Bias, name: Math) -> Step:
    match () if bias.symbols else bias.steps():
        case (Slopes() as step,):
            return _slopes(case, bias, step, name)
        case (OffsetTable() as step,):
            return _offsets(case, bias, step, name)
        case (PairTable(),):
            why = "The numbers of a given table, one per pair; −∞ hides a pair."
            return Step(_title(bias), None, why, (case.over_pairs(name, _values(case, bias)),))
    formula = None if bias.symbols is None else equals(name, word(*bias.symbols))
    return Step(_title(bias), formula, f"The values of {bias!r}.", (case.over_pairs(name, _values(case, bias)),))


def _title(bias: Bias) -> str:
    return f"Bias: {bias.title}" if bias.title else "Bias"


def _slopes(case: Case, bias: Bias, step: Slopes, name: Math) -> Step:
    values, slope = _values(case, bias), case.number(step.slopes[case.head])
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
        _title(bias),
        equals(name, word("−slope·|i − j|", r"-\text{slope} \cdot |i - j|")),
        f"The further apart query and key stand, the more is taken off; the slope of head {case.head} is {slope.text}."
        + case.shortened,
        (case.over_pairs(name, values),),
        worked,
    )


def _offsets(case: Case, bias: Bias, step: OffsetTable, name: Math) -> Step:
    reach, index = step.reach, step.index
    offsets = [case.i[case.row] - j for j in case.j]
    labels = [f"i − j = {integer(offset)}" for offset in offsets]
    if index is None:
        why = f"A learned number for each offset i − j; offsets beyond ±{reach} share the last one."
        return _looked_up(case, bias, name, "table[i − j]", why, labels)
    buckets = [int(index[max(-reach, min(offset, reach)) + reach]) for offset in offsets]
    why = (
        "A learned number for each bucket of offsets: near offsets have one each, far ones share, in steps that grow "
        "with the distance."
    )
    labels = [f"{label}, bucket {bucket}" for label, bucket in zip(labels, buckets, strict=True)]
    return _looked_up(case, bias, name, "table[bucket(i − j)]", why, labels)


def _looked_up(case: Case, bias: Bias, name: Math, formula: str, why: str, reasons: list[str]) -> Step:
    values = _values(case, bias)
    worked = tuple(
        Worked(f"{case.label(key)}: {reasons[key]}", equals(name, case.number(values[case.row, key])))
        for key in case.worked_keys
    )
    latex = rf"\text{{{formula.replace('−', '--')}}}"
    return Step(
        _title(bias),
        equals(name, word(formula, latex)),
        why + case.shortened,
        (case.over_pairs(name, values),),
        worked,
    )


def _sum(case: Case, names: list[Math]) -> Step:
    terms = [_values(case, term) for term in case.asked.bias.terms()] if case.asked.bias is not None else []
    scores = case.scores(case.asked.score)
    logits = scores + sum(terms)
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
