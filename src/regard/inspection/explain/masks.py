"""The step of the mask: its condition as a formula, and which pairs are left."""

from regard.inspection.explain.case import Case
from regard.inspection.explain.notation import Math, integer, word
from regard.inspection.explain.record import Step, Worked
from regard.spec import steps
from regard.spec.masks import Full, Mask


def mask_steps(case: Case, name: Math) -> list[Step]:
    """Which pairs are hidden; nothing to say where none is and no mask was asked for."""
    mask, visible = case.asked.mask, case.visible
    if type(mask) is Full and bool(visible.all()):
        return []
    i, hidden = case.i[case.row], int((~visible).sum())
    worked = tuple(
        Worked(case.label(key), _sight(i, case.j[key], bool(visible[case.row, key]))) for key in case.worked_keys
    )
    if type(mask) is Full:
        title, formula, sentence = "Hidden pairs", None, "A score or bias of −∞ hides its pair."
    else:
        title, formula = "Mask", condition(case, mask)
        sentence = f"{mask!r} shows a pair where this holds; i is the position of the query, j that of the key."
    sentence += f" {hidden} of {visible.numel()} pairs are hidden and take no part in what follows."
    if not bool(visible.any(-1).all()):
        sentence += " A query that sees no key has weights 0 and output 0."
    table = case.over_pairs(name, case.pairs(case.stages.logits), visible)
    return [Step(title, formula, sentence + case.shortened, (table,), worked)]


def _sight(i: int, j: int, visible: bool) -> Math:
    seen = "visible" if visible else "hidden"
    return word(f"i = {integer(i)}, j = {integer(j)}: {seen}", rf"i = {i},\ j = {j}\colon\ \text{{{seen}}}")


def condition(case: Case, mask: Mask) -> Math:
    """When a pair (i, j) is visible, in the symbols of logic."""
    return _condition(case, mask)[0]


def _condition(case: Case, mask: Mask) -> tuple[Math, bool]:
    """The formula, and whether it is an "or", which needs brackets inside an "and"."""
    if mask.symbols is not None:
        return word(*mask.symbols), True
    if mask.combines is not None:
        how, masks = mask.combines
        return _combined(how, [_condition(case, each) for each in masks])
    stack: list[tuple[Math, bool]] = []
    for step in mask.steps(case.asked.plane):
        if isinstance(step, steps.Combine):
            count = 1 if step is steps.Combine.NOT else 2
            stack[-count:] = [_combined(step, stack[-count:])]
        else:
            stack.append((_formula(case, step), isinstance(step, steps.Among)))
    return stack[0] if stack else (word("visible(i, j)", r"\operatorname{visible}(i, j)"), False)


def _combined(how: steps.Combine, formulas: list[tuple[Math, bool]]) -> tuple[Math, bool]:
    if how is steps.Combine.NOT:
        ((inner, _),) = formulas
        return word(f"not ({inner.text})", rf"\text{{not }} \left({inner.latex}\right)"), False
    is_or = how is steps.Combine.OR
    left, right = (
        word(f"({formula.text})", rf"\left({formula.latex}\right)") if loose and not is_or else formula
        for formula, loose in formulas
    )
    join = how.value
    return word(f"{left.text} {join} {right.text}", rf"{left.latex} \text{{ {join} }} {right.latex}"), is_or


def _formula(case: Case, step: steps.MaskStep) -> Math:
    match step:
        case steps.Band():
            return _band(step)
        case steps.DilatedBand():
            return word(
                f"|i − j| ≤ {step.reach} and {step.step} divides i − j",
                rf"|i - j| \le {step.reach} \text{{ and }} {step.step} \mid i - j",
            )
        case steps.Below():
            return word(f"j < {int(step.limits[case.batch if step.limits.numel() > 1 else 0])}")
        case steps.Among():
            listed = ", ".join(str(int(at)) for at in step.positions)
            latex = rf"i \in \{{{listed}\}} \text{{ or }} j \in \{{{listed}\}}"
            return word(f"i ∈ {{{listed}}} or j ∈ {{{listed}}}", latex)
        case steps.SameId():
            return word("document(i) = document(j)", r"\text{document}(i) = \text{document}(j)")
        case steps.BlockTable():
            size = step.size
            latex = rf"\text{{layout}}[\lfloor i/{size} \rfloor, \lfloor j/{size} \rfloor]"
            return word(f"layout[⌊i/{size}⌋, ⌊j/{size}⌋]", latex)
        case steps.PairTable():
            return word("table[query, key]", r"\text{table}[\text{query}, \text{key}]")
        case steps.Rule(rows=False):
            return word("fn(b, h, i, j)", r"\operatorname{fn}(b, h, i, j)")
    return word("fn(b, h, query, key)", r"\operatorname{fn}(b, h, \text{query}, \text{key})")


def _band(step: steps.Band) -> Math:
    text, latex = "j", "j"
    if step.before is not None:
        text, latex = f"{_moved(-step.before)} ≤ {text}", rf"{_moved(-step.before, '-')} \le {latex}"
    if step.after is not None:
        text, latex = f"{text} ≤ {_moved(step.after)}", rf"{latex} \le {_moved(step.after, '-')}"
    return word("true", r"\text{true}") if text == "j" else word(text, latex)


def _moved(by: int, sign: str = "−") -> str:
    """i, i + 2 or i − 2."""
    return f"i {'+' if by > 0 else sign} {abs(by)}" if by else "i"
