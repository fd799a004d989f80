"""Steps from logits to the output: temperature, normalizer, dropout and values."""

import math

import torch
from torch import Tensor

from regard.inspection.explain.case import MOST_KEYS, ExplainedQuery
from regard.inspection.explain.notation import SUM, Math, call, equals, exp, minus, over, plus, times, word
from regard.inspection.explain.record import Step, Worked
from regard.spec.steps import Exponential, Largest, Threshold

_LARGEST = 20.0  # e^20 is still readable; beyond, the largest of the row is subtracted first, as engines do


def temperature_steps(case: ExplainedQuery, name: Math) -> list[Step]:
    """The division by τ, where τ is not 1."""
    tau = case.request.temperatures
    temperature = float(case.pick(tau)) if isinstance(tau, Tensor) else tau
    if temperature == 1:
        return []
    logits, divisor = case.stages.logits, case.number(temperature)
    effect = "sharper: large ones gain" if temperature < 1 else "softer: differences shrink"
    table = over(name, word("τ", r"\tau"))
    return [
        case.pair_step(
            "Temperature",
            table,
            over(name, divisor),
            f"Divided by the temperature τ = {divisor.text}, the weights become {effect}.",
            case.stages.exponents,
            lambda key: [over(case.number(logits[case.row, key]), divisor)],
            hide=True,
        )
    ]


def normalizer_steps(case: ExplainedQuery, name: Math) -> list[Step]:
    """The weights A, by the primitive step of the normalizer."""
    normalizer = case.request.normalizer
    match normalizer.step:
        case Exponential():
            return _softmax(case, name)
        case Threshold():
            return [_sparsemax(case, name)]
        case Largest():
            return [_hard(case, name)]
    table = case.over_pairs("A", case.stages.weights, hide=True)
    return [case.step_of("Weights", normalizer, word("A"), f"The weights of {normalizer!r}, row by row.", table)]


def _softmax(case: ExplainedQuery, name: Math) -> list[Step]:
    """The exponentials with their sums, and each of them over the sum. `m` is what is subtracted from a row first."""
    exponents, lse, row = case.stages.exponents, case.stages.state, case.row
    sink = None if case.request.sink is None else float(case.pick(case.request.sink.unsqueeze(-1)))
    tops = _subtracted(case, sink)
    powers = (exponents - tops).exp()
    totals = powers.sum(-1, keepdim=True)
    columns: dict[str, Tensor] = {}
    if sink is not None:
        columns["sink"] = torch.exp(torch.full_like(tops, sink) - tops)
        totals = totals + columns["sink"]
    columns |= {"sum": totals, "lse": lse}
    inner, note, sink_term = name, "", word("s")
    if bool(tops.any()):
        columns["m"] = tops
        inner, sink_term = minus(name, word("m")), minus(word("s"), word("m"))
        note = " before anything is subtracted: the row's largest logit m is subtracted first, so that no power is too "
        note += "large"
    power, total = exp(inner), case.number(totals[row])
    below = Math(f"sum over keys of {power.text}", rf"\sum_{{\text{{keys}}}} {power.latex}", SUM)
    shares = "1."
    if sink is not None:
        note += "; the sink takes part in the sum and has no value"
        below = plus([below, exp(sink_term)])
        shares = "1 together with the sink's share, so the sink takes weight away."
    return [
        Step(
            "Exponentials",
            power,
            "Every logit becomes a positive number; a row's sum is what its weights are divided by, and lse is the "
            f"natural logarithm of that sum{note}.{case.shortened}",
            (
                case.over_pairs(power, powers, hide=True),
                case.matrix("", torch.cat(list(columns.values()), 1), case.queries, list(columns)),
            ),
            _sum_lines(case, powers, float(tops[row]), sink, total),
        ),
        case.pair_step(
            "Weights: softmax",
            word("A"),
            over(power, below),
            f"Each power is divided by its row's sum: the weights of a row are positive and add up to {shares}",
            case.stages.weights,
            lambda key: [
                over(exp(case.number(exponents[row, key] - tops[row, 0])), total),
                over(case.number(powers[row, key]), total),
            ],
            hide=True,
        ),
    ]


def _subtracted(case: ExplainedQuery, sink: float | None) -> Tensor:
    """What is subtracted from each row before e^: nothing, or the largest logit if some are large."""
    exponents = case.stages.exponents
    if not bool((exponents[case.stages.visible].abs() > _LARGEST).any()) and (sink is None or abs(sink) <= _LARGEST):
        return torch.zeros_like(exponents[:, :1])
    tops = exponents.amax(-1, keepdim=True)
    tops = tops if sink is None else tops.clamp(min=sink)
    return torch.where(tops.isfinite(), tops, 0.0)


def _sum_lines(case: ExplainedQuery, powers: Tensor, top: float, sink: float | None, total: Math) -> tuple[Worked, ...]:
    """The sum of the worked row and its logarithm."""
    logits, parts = (case.entries(each, case.visible_keys) for each in (case.stages.exponents, powers))
    if sink is not None:
        logits.append(case.number(sink))
        parts.append(case.number(math.exp(sink - top)))
    if not logits:
        return ()
    log = call("ln", total)
    if top:
        logits = [minus(each, case.number(top)) for each in logits]
        log = plus([case.number(top), log])
    return (
        Worked("sum", equals(plus([exp(each) for each in logits]), plus(parts), total)),
        Worked("lse", equals(log, case.number(case.stages.state[case.row]))),
    )


def _sparsemax(case: ExplainedQuery, name: Math) -> Step:
    exponents, weights, thresholds = case.stages.exponents, case.stages.weights, case.stages.state
    threshold = case.number(thresholds[case.row, 0])
    support = [key for key in case.visible_keys if float(weights[case.row, key]) > 0]
    first = []
    if support:
        top = minus(plus(case.entries(exponents, support)), word("1"))
        first = [Worked("threshold", equals(word("t"), over(top, word(str(len(support)))), threshold))]
    return case.pair_step(
        "Weights: sparsemax",
        word("A"),
        Math(f"max({name.text} − t, 0)", rf"\max({name.latex} - t, 0)"),
        "A threshold t per row is subtracted, and what is below it gets exactly 0; t is chosen so that the rest adds "
        "up to 1: the sum of the logits above t, less 1, over their number.",
        weights,
        lambda key: [call("max", minus(case.number(exponents[case.row, key]), threshold), word("0"))],
        case.matrix("t", thresholds, case.queries),
        worked=first,
        hide=True,
    )


def _hard(case: ExplainedQuery, name: Math) -> Step:
    lines: tuple[Worked, ...] = ()
    if case.visible_keys:
        best = int(case.stages.state[case.row, 0])
        logits = case.entries(case.stages.exponents, case.visible_keys[:MOST_KEYS])
        if len(case.visible_keys) > MOST_KEYS:
            logits.append(word("…", r"\dots"))
        lines = case.lines(case.stages.exponents, lambda key: [call("max", *logits)], [best])
    return Step(
        "Weights: the largest alone",
        Math(
            f"A = 1 at the first largest {name.text}, else 0",
            rf"A = 1 \text{{ at the first largest }} {name.latex}, \text{{ else }} 0",
        ),
        "All weight goes to the key with the largest logit, the first of equals.",
        (case.over_pairs("A", case.stages.weights, hide=True),),
        lines,
    )


def dropout_steps(case: ExplainedQuery) -> list[Step]:
    """Which weights are dropped, and the factor of the others."""
    dropout, factors, weights = case.request.dropout, case.stages.factors, case.stages.weights
    if dropout is None or factors is None:
        return []
    visible = case.stages.visible
    factor = case.number(1.0 / (1.0 - dropout.p))
    return [
        case.pair_step(
            "Dropout",
            word("D"),
            word("A·(0 or 1/(1 − p))", r"A \cdot \left(0 \text{ or } \frac{1}{1 - p}\right)"),
            f"{dropout!r} drops {int(((factors == 0) & visible).sum())} of {int(visible.sum())} weights and multiplies "
            f"the others by 1/(1 − p) = {factor.text}, so that the sum stays the same on average. Rows need not add up "
            "to 1 any more.",
            case.stages.dropped,
            lambda key: [times(case.number(weights[case.row, key]), case.number(factors[case.row, key]))],
            worked=[Worked("factor", equals(over(word("1"), minus(word("1"), case.number(dropout.p))), factor))],
            hide=True,
        )
    ]


def output_steps(case: ExplainedQuery) -> list[Step]:
    """The output, and its rounding where the inputs are less precise than the sums."""
    request, output, keys = case.request, case.stages.output, case.visible_keys
    name = "A" if request.dropout is None else "D"
    steps = [
        Step(
            "Output",
            word(f"O = {name}·V", f"O = {name} V"),
            "The output of a query is the sum of the values, each times its weight.",
            (case.matrix("V", case.value, case.keys), case.matrix("O", output, case.queries)),
            case.matrix_row(case.queries, case.row, case.stages.dropped[:, keys], case.value[keys], output),
        )
    ]
    if request.query.dtype != request.dtype:
        computed, given = (str(dtype).removeprefix("torch.") for dtype in (request.dtype, request.query.dtype))
        sentence = f"Everything so far was computed in {computed}; the result is rounded once, to the inputs' {given}."
        steps.append(
            Step("Rounding", None, sentence, (case.matrix("O", output.to(request.query.dtype), case.queries),))
        )
    return steps
