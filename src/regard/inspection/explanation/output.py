"""Steps after the weights: dropout, the weighted sum of the values, rounding to the precision of the inputs."""

import torch

from regard import checks
from regard.inspection.explanation.case import MOST_KEYS, Case
from regard.inspection.explanation.notation import dot, equals, minus, over, times, word
from regard.inspection.explanation.record import Step, Worked


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
