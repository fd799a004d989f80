"""The step of the mask: its condition as a formula, and which pairs are left."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from regard.inspection.explanation.case import Case
from regard.inspection.explanation.notation import Math, integer, word
from regard.inspection.explanation.record import Step, Worked
from regard.spec.masks import (
    And,
    Blocks,
    Causal,
    Dense,
    Dilated,
    Documents,
    Full,
    Global,
    Lengths,
    Mask,
    Not,
    Or,
    Prefix,
    Where,
    Window,
)


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
    return _CONDITIONS.get(type(mask), _other)(case, mask)


def _full(case: Case, mask: Full) -> Math:
    return word("true", r"\text{true}")


def _causal(case: Case, mask: Causal) -> Math:
    return word("j ≤ i", r"j \le i")


def _window(case: Case, mask: Window) -> Math:
    text, latex = "j", "j"
    if mask.before is not None:
        text, latex = f"{_moved(-mask.before)} ≤ {text}", rf"{_moved(-mask.before, '-')} \le {latex}"
    if mask.after is not None:
        text, latex = f"{text} ≤ {_moved(mask.after)}", rf"{latex} \le {_moved(mask.after, '-')}"
    return _full(case, Full()) if text == "j" else word(text, latex)


def _moved(by: int, sign: str = "−") -> str:
    """i, i + 2 or i − 2."""
    return f"i {'+' if by > 0 else sign} {abs(by)}" if by else "i"


def _dilated(case: Case, mask: Dilated) -> Math:
    reach = mask.step * (mask.width // 2)
    return word(
        f"|i − j| ≤ {reach} and {mask.step} divides i − j",
        rf"|i - j| \le {reach} \text{{ and }} {mask.step} \mid i - j",
    )


def _global(case: Case, mask: Global) -> Math:
    listed = ", ".join(str(int(at)) for at in mask.positions)
    return word(f"i ∈ {{{listed}}} or j ∈ {{{listed}}}", rf"i \in \{{{listed}\}} \text{{ or }} j \in \{{{listed}\}}")


def _prefix(case: Case, mask: Prefix) -> Math:
    return word(f"j < {_of_row(case, mask.p)}")


def _lengths(case: Case, mask: Lengths) -> Math:
    return word(f"j < {_of_row(case, mask.lengths)}")


def _of_row(case: Case, value: Tensor | int) -> int:
    if not isinstance(value, Tensor):
        return value
    return int(value[case.batch if value.numel() > 1 else 0])


def _documents(case: Case, mask: Documents) -> Math:
    return word("document(i) = document(j)", r"\text{document}(i) = \text{document}(j)")


def _blocks(case: Case, mask: Blocks) -> Math:
    size = mask.size
    return word(
        f"layout[⌊i/{size}⌋, ⌊j/{size}⌋]", rf"\text{{layout}}[\lfloor i/{size} \rfloor, \lfloor j/{size} \rfloor]"
    )


def _dense(case: Case, mask: Dense) -> Math:
    return word("table[query, key]", r"\text{table}[\text{query}, \text{key}]")


def _where(case: Case, mask: Where) -> Math:
    return word("fn(b, h, i, j)", r"\operatorname{fn}(b, h, i, j)")


def _and(case: Case, mask: And) -> Math:
    return _joined(_in_and(case, mask.left), _in_and(case, mask.right), "and")


def _in_and(case: Case, mask: Mask) -> Math:
    formula = condition(case, mask)
    if not isinstance(mask, Or | Global):
        return formula
    return word(f"({formula.text})", rf"\left({formula.latex}\right)")


def _or(case: Case, mask: Or) -> Math:
    return _joined(condition(case, mask.left), condition(case, mask.right), "or")


def _joined(left: Math, right: Math, how: str) -> Math:
    return word(f"{left.text} {how} {right.text}", rf"{left.latex} \text{{ {how} }} {right.latex}")


def _not(case: Case, mask: Not) -> Math:
    inner = condition(case, mask.mask)
    return word(f"not ({inner.text})", rf"\text{{not }} \left({inner.latex}\right)")


def _other(case: Case, mask: Mask) -> Math:
    return word("visible(i, j)", r"\operatorname{visible}(i, j)")


_CONDITIONS: dict[type[Mask], Callable[[Case, Any], Math]] = {
    Full: _full,
    Causal: _causal,
    Window: _window,
    Dilated: _dilated,
    Global: _global,
    Prefix: _prefix,
    Lengths: _lengths,
    Documents: _documents,
    Blocks: _blocks,
    Dense: _dense,
    Where: _where,
    And: _and,
    Or: _or,
    Not: _not,
}
