"""Steps of temperature and normalizer: how the logits of a row become its weights."""

import math

import torch
from torch import Tensor

from regard import checks
from regard.inspection.explain.case import MOST_KEYS, Case
from regard.inspection.explain.notation import SUM, Math, call, dot, equals, exp, minus, over, plus, times, word
from regard.inspection.explain.record import Step, Worked
from regard.spec.normalizers import Normalizer
from regard.spec.steps import Exponential, Largest, Threshold

_LARGEST = 20.0  # e^20 is still readable; beyond, the largest of the row is subtracted first, as engines do


def temperature_steps(case: Case, name: Math) -> list[Step]:
    """The division by τ, where τ is not 1."""
    tau = case.asked.temperatures
    temperature = float(case.pick(tau)) if isinstance(tau, Tensor) else tau
    if temperature == 1:
        return []
    values, before, shown = case.pairs(case.stages.exponents), case.pairs(case.stages.logits), case.number(temperature)
    worked = tuple(
        Worked(
            case.label(key), equals(over(case.number(before[case.row, key]), shown), case.number(values[case.row, key]))
        )
        for key in case.seen_keys[:MOST_KEYS]
    )
    effect = "sharper: large ones gain" if temperature < 1 else "softer: differences shrink"
    table = over(name, word("τ", r"\tau"))
    return [
        Step(
            "Temperature",
            equals(table, over(name, shown)),
            f"Divided by the temperature τ = {shown.text}, the weights become {effect}." + case.shortened,
            (case.over_pairs(table, values, case.visible),),
            worked,
        )
    ]


def normalizer_steps(case: Case, name: Math) -> list[Step]:
    """The weights A, by the kind of normalizer."""
    match case.asked.normalizer.step:
        case Exponential():
            return _softmax(case, name)
        case Threshold():
            return [_sparsemax(case, name)]
        case Largest():
            return [_hard(case, name)]
    return [_other(case, case.asked.normalizer)]


def _weights(case: Case) -> Tensor:
    return case.pairs(case.stages.weights)


def _row(case: Case, keys: list[int] | None = None) -> list[Math]:
    """The exponents of the keys that the worked query sees."""
    values = case.pairs(case.stages.exponents)[case.row]
    return [case.number(values[key]) for key in (case.seen_keys if keys is None else keys)]


def _softmax(case: Case, name: Math) -> list[Step]:
    exponents, lse = case.pairs(case.stages.exponents), case.pick(case.stages.state.unsqueeze(-1))
    sink = None if case.asked.sink is None else float(case.pick(case.asked.sink.unsqueeze(-1)))
    tops = _tops(case, exponents, sink)
    powers = (exponents - tops).exp()
    extra = None if sink is None else torch.exp(torch.full_like(tops, sink) - tops)
    totals = powers.sum(-1, keepdim=True) + (0.0 if extra is None else extra)
    shift = (
        "" if not bool(tops.any()) else "the row's largest logit m is subtracted first, so that no power is too large"
    )
    columns = [totals, lse] if extra is None else [extra, totals, lse]
    inner = name if not shift else minus(name, word("m"))
    rows = case.matrix(
        "",
        torch.cat(columns + ([tops] if shift else []), 1),
        case.queries,
        [*([] if extra is None else ["sink"]), "sum", "lse", *(["m"] if shift else [])],
    )
    powers_step = Step(
        "Exponentials",
        exp(inner),
        "Every logit becomes a positive number; a row's sum is what its weights are divided by, and lse is the natural "
        "logarithm of that sum"
        + (" before anything is subtracted: " + shift if shift else "")
        + ("; the sink takes part in the sum and has no value" if sink is not None else "")
        + "."
        + case.shortened,
        (case.over_pairs(exp(inner), powers, case.visible), rows),
        _sum_lines(case, exponents, powers, float(tops[case.row]), sink, float(totals[case.row]), float(lse[case.row])),
    )
    return [powers_step, _shares(case, name, inner, exponents - tops, powers, float(totals[case.row]), sink)]


def _tops(case: Case, exponents: Tensor, sink: float | None) -> Tensor:
    """What is subtracted from each row before e^: nothing, or the largest logit if some are large."""
    if not bool((exponents[case.visible].abs() > _LARGEST).any()) and (sink is None or abs(sink) <= _LARGEST):
        return torch.zeros_like(exponents[:, :1])
    tops = exponents.amax(-1, keepdim=True)
    tops = tops if sink is None else tops.clamp(min=sink)
    return torch.where(tops.isfinite(), tops, 0.0)


def _sum_lines(
    case: Case, exponents: Tensor, powers: Tensor, top: float, sink: float | None, total: float, lse: float
) -> tuple[Worked, ...]:
    """The sum of the worked row and its logarithm."""
    if not case.seen_keys and sink is None:
        return ()
    shown = [float(exponents[case.row, key]) for key in case.seen_keys] + ([] if sink is None else [sink])
    terms = [minus(case.number(each), case.number(top)) if top else case.number(each) for each in shown]
    parts = [float(powers[case.row, key]) for key in case.seen_keys] + ([] if sink is None else [math.exp(sink - top)])
    log = call("ln", case.number(total))
    return (
        Worked("sum", equals(plus([exp(term) for term in terms]), plus(case.numbers(parts)), case.number(total))),
        Worked("lse", equals(plus([case.number(top), log]) if top else log, case.number(lse))),
    )


def _shares(
    case: Case, name: Math, inner: Math, exponents: Tensor, powers: Tensor, total: float, sink: float | None
) -> Step:
    weights, bottom = _weights(case), case.number(total)
    worked = tuple(
        Worked(
            case.label(key),
            equals(
                over(exp(case.number(exponents[case.row, key])), bottom),
                over(case.number(powers[case.row, key]), bottom),
                case.number(weights[case.row, key]),
            ),
        )
        for key in case.seen_keys[:MOST_KEYS]
    )
    power, sunk = exp(inner), exp(word("s") if inner == name else minus(word("s"), word("m")))
    below = Math(f"sum over keys of {power.text}", rf"\sum_{{\text{{keys}}}} {power.latex}", SUM)
    if sink is not None:
        below = plus([below, sunk])
    why = "Each power is divided by its row's sum: the weights of a row are positive and add up to "
    why += "1." if sink is None else "1 together with the sink's share, so the sink takes weight away."
    return Step(
        "Weights: softmax",
        equals(word("A"), over(power, below)),
        why + case.shortened,
        (case.over_pairs("A", weights, case.visible),),
        worked,
    )


def _sparsemax(case: Case, name: Math) -> Step:
    weights = _weights(case)
    thresholds = case.pick(case.stages.state.unsqueeze(-1))
    threshold = case.number(thresholds[case.row, 0])
    support = [key for key in case.seen_keys if float(weights[case.row, key]) > 0]
    lines: list[Worked] = []
    if support:
        top = minus(plus(_row(case, support)), word("1"))
        lines.append(Worked("threshold", equals(word("t"), over(top, word(str(len(support)))), threshold)))
    for key in case.seen_keys[:MOST_KEYS]:
        inside = minus(case.number(case.pairs(case.stages.exponents)[case.row, key]), threshold)
        lines.append(
            Worked(case.label(key), equals(call("max", inside, word("0")), case.number(weights[case.row, key])))
        )
    return Step(
        "Weights: sparsemax",
        Math(f"A = max({name.text} − t, 0)", rf"A = \max({name.latex} - t, 0)"),
        "A threshold t per row is subtracted, and what is below it gets exactly 0; t is chosen so that the rest adds "
        "up to 1: the sum of the logits above t, less 1, over their number." + case.shortened,
        (case.matrix("t", thresholds, case.queries), case.over_pairs("A", weights, case.visible)),
        tuple(lines),
    )


def _hard(case: Case, name: Math) -> Step:
    weights = _weights(case)
    lines: tuple[Worked, ...] = ()
    if case.seen_keys:
        best = int(case.pick(case.stages.state.unsqueeze(-1))[case.row, 0])
        largest = case.number(case.pairs(case.stages.exponents)[case.row, best])
        seen = [case.number(case.pairs(case.stages.exponents)[case.row, key]) for key in case.seen_keys[:MOST_KEYS]]
        if len(case.seen_keys) > MOST_KEYS:
            seen.append(word("…", r"\dots"))
        lines = (Worked(case.label(best), equals(call("max", *seen), largest)),)
    return Step(
        "Weights: the largest alone",
        Math(
            f"A = 1 at the first largest {name.text}, else 0",
            rf"A = 1 \text{{ at the first largest }} {name.latex}, \text{{ else }} 0",
        ),
        "All weight goes to the key with the largest logit, the first of equals.",
        (case.over_pairs("A", weights, case.visible),),
        lines,
    )


def _other(case: Case, normalizer: Normalizer) -> Step:
    table = case.over_pairs("A", _weights(case), case.visible)
    formula = None if normalizer.symbols is None else equals(word("A"), word(*normalizer.symbols))
    title = f"Weights: {normalizer.title}" if normalizer.title else "Weights"
    return Step(title, formula, f"The weights of {normalizer!r}, row by row.", (table,))


def dropout_steps(case: Case) -> list[Step]:
    """Which weights are dropped, and the factor of the others."""
    dropout, factors = case.asked.dropout, case.stages.factors
    if dropout is None or factors is None:
        return []
    weights, kept, dropped = (case.pairs(each) for each in (case.stages.weights, factors, case.stages.dropped))
    rate, factor = case.number(dropout.p), case.number(1.0 / (1.0 - dropout.p))
    lost = int(((kept == 0) & case.visible).sum())
    worked = [Worked("factor", equals(over(word("1"), minus(word("1"), rate)), factor))]
    worked += [
        Worked(
            case.label(key),
            equals(
                times(case.number(weights[case.row, key]), case.number(kept[case.row, key])),
                case.number(dropped[case.row, key]),
            ),
        )
        for key in case.seen_keys[:MOST_KEYS]
    ]
    return [
        Step(
            "Dropout",
            word("D = A·(0 or 1/(1 − p))", r"D = A \cdot \left(0 \text{ or } \frac{1}{1 - p}\right)"),
            f"{dropout!r} drops {lost} of {int(case.visible.sum())} weights and multiplies the others by "
            f"1/(1 − p) = {factor.text}, so that the sum stays the same on average. Rows need not add up to 1 any more."
            + case.shortened,
            (case.over_pairs("D", dropped, case.visible),),
            tuple(worked),
        )
    ]


def output_steps(case: Case) -> list[Step]:
    """The output, and its rounding where the inputs are less precise than the sums."""
    used, output = case.pairs(case.stages.dropped), case.pick(case.stages.output)
    name = "A" if case.asked.dropout is None else "D"
    row = [case.number(used[case.row, key]) for key in case.seen_keys]
    width = output.shape[1]
    worked = tuple(
        Worked(
            case.entry(case.queries, case.row, column, width),
            equals(
                dot(row, [case.number(case.value[key, column]) for key in case.seen_keys]),
                case.number(output[case.row, column]),
            ),
        )
        for column in range(min(width, MOST_KEYS))
    )
    steps = [
        Step(
            "Output",
            word(f"O = {name}·V", f"O = {name} V"),
            "The output of a query is the sum of the values, each times its weight.",
            (case.matrix("V", case.value, case.keys), case.matrix("O", output, case.queries)),
            worked,
        )
    ]
    if case.asked.query.dtype != case.asked.dtype:
        kinds = [
            checks.dtype(torch.empty(0, dtype=kind, device="cpu"))
            for kind in (case.asked.dtype, case.asked.query.dtype)
        ]
        table = case.matrix("O", output.to(case.asked.query.dtype), case.queries)
        why = f"Everything so far was computed in {kinds[0]}; the result is rounded once, to the inputs' {kinds[1]}."
        steps.append(Step("Rounding", None, why, (table,)))
    return steps
