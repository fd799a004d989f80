"""Steps from scores to the output: biases, mask, temperature, normalizer, dropout and values."""

import math

import torch
from torch import Tensor

from regard.inspection.explain.case import MOST_KEYS, ExplainedQuery, titled
from regard.inspection.explain.notation import (
    SUM,
    Math,
    absolute,
    call,
    equals,
    exp,
    integer,
    minus,
    negated,
    over,
    plus,
    subscripted,
    times,
    word,
)
from regard.inspection.explain.record import Step, Worked
from regard.spec import steps as primitives
from regard.spec.biases import Bias
from regard.spec.masks import Full, Mask

LOGIT = "numbers of any sign and size, which the next steps turn into weights"
_LARGEST = 20.0  # e^20 is still readable; beyond, the largest of the row is subtracted first, as engines do


def bias_steps(case: ExplainedQuery) -> list[Step]:
    """One step per term of the bias, then the sum with the scores."""
    request = case.request
    if request.bias is None:
        return []
    terms = request.bias.terms()
    names = [word("B")] if len(terms) == 1 else [subscripted("B", at + 1) for at in range(len(terms))]
    values = [case.pairs(term.values(request.plane.all).to(request.dtype)) for term in terms]
    scores = case.scores(request.score)
    logits = case.pair_step(
        "Logits: scores and bias",
        word("L"),
        plus([word("S"), *names]),
        f"The bias is added to the scores. The sums are the logits: {LOGIT}.",
        scores + sum(values),
        lambda key: [plus([case.number(each[case.row, key]) for each in (scores, *values)])],
    )
    return [*(_bias(case, *term) for term in zip(terms, names, values, strict=True)), logits]


def _bias(case: ExplainedQuery, bias: Bias, name: Math, values: Tensor) -> Step:
    match () if bias.symbols else bias.steps():
        case (primitives.Slopes() as step,):
            slope, i = case.number(step.slopes[case.head]), case.number(case.i[case.row])
            return case.pair_step(
                titled("Bias", bias),
                name,
                word("−slope·|i − j|", r"-\text{slope} \cdot |i - j|"),
                "The further apart query and key stand, the more is taken off; the slope of head "
                f"{case.head} is {slope.text}.",
                values,
                lambda key: [negated(times(slope, absolute(minus(i, case.number(case.j[key])))))],
            )
        case (primitives.OffsetTable() as step,):
            return _offset_table(case, bias, step, name, values)
        case (primitives.PairTable(),):
            sentence = "The numbers of a given table, one per pair; −∞ hides a pair."
            return Step(titled("Bias", bias), None, sentence, (case.over_pairs(name, values),))
    return case.step_of("Bias", bias, name, f"The values of {bias!r}.", case.over_pairs(name, values))


def _offset_table(case: ExplainedQuery, bias: Bias, step: primitives.OffsetTable, name: Math, values: Tensor) -> Step:
    reach = step.reach
    offsets = [case.i[case.row] - j for j in case.j]
    labels = [f"{case.label(key)}: i − j = {integer(offset)}" for key, offset in enumerate(offsets)]
    entry = "table[i − j]"
    sentence = f"A learned number for each offset i − j; offsets beyond ±{reach} share the last one."
    if step.index is not None:
        entry = "table[bucket(i − j)]"
        sentence = (
            "A learned number for each bucket of offsets: near offsets have one each, far ones share, in steps that "
            "grow with the distance."
        )
        buckets = [int(step.index[max(-reach, min(offset, reach)) + reach]) for offset in offsets]
        labels = [f"{label}, bucket {bucket}" for label, bucket in zip(labels, buckets, strict=True)]
    return Step(
        titled("Bias", bias),
        equals(name, word(entry, rf"\text{{{entry.replace('−', '--')}}}")),
        sentence + case.shortened,
        (case.over_pairs(name, values),),
        tuple(Worked(labels[key], equals(name, case.number(values[case.row, key]))) for key in case.worked_keys),
    )


def mask_steps(case: ExplainedQuery, name: Math) -> list[Step]:
    """Which pairs are hidden; no step where none is and there is no mask."""
    mask, visible = case.request.mask, case.stages.visible
    full = type(mask) is Full
    if full and bool(visible.all()):
        return []
    sentence = "A score or bias of −∞ hides its pair."
    if not full:
        sentence = f"{mask!r} shows a pair where this holds; i is the position of the query, j that of the key."
    sentence += f" {int((~visible).sum())} of {visible.numel()} pairs are hidden and take no part in what follows."
    if not bool(visible.any(-1).all()):
        sentence += " A query that sees no key has weights 0 and output 0."
    i, worked = case.i[case.row], []
    for key in case.worked_keys:
        j, kind = case.j[key], "visible" if bool(visible[case.row, key]) else "hidden"
        text, latex = f"i = {integer(i)}, j = {integer(j)}: {kind}", rf"i = {i},\ j = {j}\colon\ \text{{{kind}}}"
        worked.append(Worked(case.label(key), word(text, latex)))
    title, formula = ("Hidden pairs", None) if full else ("Mask", _condition(case, mask)[0])
    table = case.over_pairs(name, case.stages.logits, hide=True)
    return [Step(title, formula, sentence + case.shortened, (table,), tuple(worked))]


def _condition(case: ExplainedQuery, mask: Mask) -> tuple[Math, bool]:
    """When a pair (i, j) is visible, and whether that is an "or", which needs brackets inside an "and"."""
    if mask.symbols is not None:
        return word(*mask.symbols), True
    if mask.combines is not None:
        how, masks = mask.combines
        return _combined(how, [_condition(case, each) for each in masks])
    stack: list[tuple[Math, bool]] = []
    for step in mask.steps(case.request.plane):
        if isinstance(step, primitives.Combine):
            count = 1 if step is primitives.Combine.NOT else 2
            stack[-count:] = [_combined(step, stack[-count:])]
        else:
            stack.append((_formula(case, step), isinstance(step, primitives.Among)))
    return stack[0] if stack else (word("visible(i, j)", r"\operatorname{visible}(i, j)"), False)


def _combined(how: primitives.Combine, formulas: list[tuple[Math, bool]]) -> tuple[Math, bool]:
    if how is primitives.Combine.NOT:
        ((inner, _),) = formulas
        return word(f"not ({inner.text})", rf"\text{{not }} \left({inner.latex}\right)"), False
    is_or = how is primitives.Combine.OR
    left, right = (
        word(f"({formula.text})", rf"\left({formula.latex}\right)") if loose and not is_or else formula
        for formula, loose in formulas
    )
    join = how.value
    return word(f"{left.text} {join} {right.text}", rf"{left.latex} \text{{ {join} }} {right.latex}"), is_or


def _formula(case: ExplainedQuery, step: primitives.MaskStep) -> Math:
    match step:
        case primitives.Band(before=None, after=None):
            return word("true", r"\text{true}")
        case primitives.Band():
            text, latex = "j", "j"
            if step.before is not None:
                text, latex = f"{_moved(-step.before)} ≤ {text}", rf"{_moved(-step.before, '-')} \le {latex}"
            if step.after is not None:
                text, latex = f"{text} ≤ {_moved(step.after)}", rf"{latex} \le {_moved(step.after, '-')}"
            return word(text, latex)
        case primitives.DilatedBand():
            return word(
                f"|i − j| ≤ {step.reach} and {step.step} divides i − j",
                rf"|i - j| \le {step.reach} \text{{ and }} {step.step} \mid i - j",
            )
        case primitives.Below():
            return word(f"j < {int(step.limits[case.batch if step.limits.numel() > 1 else 0])}")
        case primitives.Among():
            listed = ", ".join(str(int(at)) for at in step.positions)
            latex = rf"i \in \{{{listed}\}} \text{{ or }} j \in \{{{listed}\}}"
            return word(f"i ∈ {{{listed}}} or j ∈ {{{listed}}}", latex)
        case primitives.SameId():
            return word("document(i) = document(j)", r"\text{document}(i) = \text{document}(j)")
        case primitives.BlockTable():
            size = step.size
            latex = rf"\text{{layout}}[\lfloor i/{size} \rfloor, \lfloor j/{size} \rfloor]"
            return word(f"layout[⌊i/{size}⌋, ⌊j/{size}⌋]", latex)
        case primitives.PairTable():
            return word("table[query, key]", r"\text{table}[\text{query}, \text{key}]")
        case primitives.Rule(rows=False):
            return word("fn(b, h, i, j)", r"\operatorname{fn}(b, h, i, j)")
    return word("fn(b, h, query, key)", r"\operatorname{fn}(b, h, \text{query}, \text{key})")


def _moved(by: int, sign: str = "−") -> str:
    """i, i + 2 or i − 2."""
    return f"i {'+' if by > 0 else sign} {abs(by)}" if by else "i"


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
        case primitives.Exponential():
            return _softmax(case, name)
        case primitives.Threshold():
            return [_sparsemax(case, name)]
        case primitives.Largest():
            return [_hard(case, name)]
    table = case.over_pairs("A", case.stages.weights, hide=True)
    return [case.step_of("Weights", normalizer, word("A"), f"The weights of {normalizer!r}, row by row.", table)]


def _softmax(case: ExplainedQuery, name: Math) -> list[Step]:
    """The exponentials with their sums, and each of them over the sum.

    `tops` are subtracted from each row before e^: nothing, or the largest logit if some are large.
    """
    exponents, lse, row = case.stages.exponents, case.stages.state, case.row
    sink = None if case.request.sink is None else float(case.pick(case.request.sink.unsqueeze(-1)))
    tops = torch.zeros_like(exponents[:, :1])
    if bool((exponents[case.stages.visible].abs() > _LARGEST).any()) or (sink is not None and abs(sink) > _LARGEST):
        tops = exponents.amax(-1, keepdim=True)
        tops = tops if sink is None else tops.clamp(min=sink)
        tops = torch.where(tops.isfinite(), tops, 0.0)
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
        note = (
            "; the row's largest logit m is subtracted before e^, so that no power is too large, and lse is ln(sum) + m"
        )
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
            f"{_introduced(case)} e to its power is positive. A row's sum is what its weights are divided by, and "
            "lse (log-sum-exp) is the natural logarithm of that sum, so that a weight is also "
            f"e^({name.text} − lse){note}.{case.shortened}",
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


def _introduced(case: ExplainedQuery) -> str:
    """What a logit is, if no step before has said it."""
    return "Of each logit" if case.request.bias is not None else f"The scores are called logits: {LOGIT}. Of each,"


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
