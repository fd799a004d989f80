"""Steps from scores to logits: what each bias adds, and which pairs the mask hides."""

from torch import Tensor

from regard.inspection.explain.case import ExplainedQuery, titled
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
from regard.spec.masks import Full, Mask
from regard.spec.steps import (
    Among,
    Band,
    Below,
    BlockTable,
    Combine,
    DilatedBand,
    MaskStep,
    OffsetTable,
    PairTable,
    Rule,
    SameId,
    Slopes,
)


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
        "The bias is added to the scores.",
        scores + sum(values),
        lambda key: [plus([case.number(each[case.row, key]) for each in (scores, *values)])],
    )
    return [*(_bias(case, *term) for term in zip(terms, names, values, strict=True)), logits]


def _bias(case: ExplainedQuery, bias: Bias, name: Math, values: Tensor) -> Step:
    match () if bias.symbols else bias.steps():
        case (Slopes() as step,):
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
        case (OffsetTable() as step,):
            return _offset_table(case, bias, step, name, values)
        case (PairTable(),):
            sentence = "The numbers of a given table, one per pair; −∞ hides a pair."
            return Step(titled("Bias", bias), None, sentence, (case.over_pairs(name, values),))
    return case.step_of("Bias", bias, name, f"The values of {bias!r}.", case.over_pairs(name, values))


def _offset_table(case: ExplainedQuery, bias: Bias, step: OffsetTable, name: Math, values: Tensor) -> Step:
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
        if isinstance(step, Combine):
            count = 1 if step is Combine.NOT else 2
            stack[-count:] = [_combined(step, stack[-count:])]
        else:
            stack.append((_formula(case, step), isinstance(step, Among)))
    return stack[0] if stack else (word("visible(i, j)", r"\operatorname{visible}(i, j)"), False)


def _combined(how: Combine, formulas: list[tuple[Math, bool]]) -> tuple[Math, bool]:
    if how is Combine.NOT:
        ((inner, _),) = formulas
        return word(f"not ({inner.text})", rf"\text{{not }} \left({inner.latex}\right)"), False
    is_or = how is Combine.OR
    left, right = (
        word(f"({formula.text})", rf"\left({formula.latex}\right)") if loose and not is_or else formula
        for formula, loose in formulas
    )
    join = how.value
    return word(f"{left.text} {join} {right.text}", rf"{left.latex} \text{{ {join} }} {right.latex}"), is_or


def _formula(case: ExplainedQuery, step: MaskStep) -> Math:
    match step:
        case Band(before=None, after=None):
            return word("true", r"\text{true}")
        case Band():
            text, latex = "j", "j"
            if step.before is not None:
                text, latex = f"{_moved(-step.before)} ≤ {text}", rf"{_moved(-step.before, '-')} \le {latex}"
            if step.after is not None:
                text, latex = f"{text} ≤ {_moved(step.after)}", rf"{latex} \le {_moved(step.after, '-')}"
            return word(text, latex)
        case DilatedBand():
            return word(
                f"|i − j| ≤ {step.reach} and {step.step} divides i − j",
                rf"|i - j| \le {step.reach} \text{{ and }} {step.step} \mid i - j",
            )
        case Below():
            return word(f"j < {int(step.limits[case.batch if step.limits.numel() > 1 else 0])}")
        case Among():
            listed = ", ".join(str(int(at)) for at in step.positions)
            latex = rf"i \in \{{{listed}\}} \text{{ or }} j \in \{{{listed}\}}"
            return word(f"i ∈ {{{listed}}} or j ∈ {{{listed}}}", latex)
        case SameId():
            return word("document(i) = document(j)", r"\text{document}(i) = \text{document}(j)")
        case BlockTable():
            size = step.size
            latex = rf"\text{{layout}}[\lfloor i/{size} \rfloor, \lfloor j/{size} \rfloor]"
            return word(f"layout[⌊i/{size}⌋, ⌊j/{size}⌋]", latex)
        case PairTable():
            return word("table[query, key]", r"\text{table}[\text{query}, \text{key}]")
        case Rule(rows=False):
            return word("fn(b, h, i, j)", r"\operatorname{fn}(b, h, i, j)")
    return word("fn(b, h, query, key)", r"\operatorname{fn}(b, h, \text{query}, \text{key})")


def _moved(by: int, sign: str = "−") -> str:
    """i, i + 2 or i − 2."""
    return f"i {'+' if by > 0 else sign} {abs(by)}" if by else "i"
