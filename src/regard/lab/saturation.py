"""saturation: softmax of [1, 2, 3] and [10, 20, 30], and the derivative that is left for learning.

Three keys of width one hold the scores and the query is 1, so attention's weights are the softmax and its gradient
with respect to the keys is the Jacobian, diag(w) − w wᵀ. Nothing here is random.
"""

import torch
from torch import Tensor

from regard.inspection.records import Bars, Line, Lines, Panel, Picture, Table
from regard.lab.maps import weights
from regard.lab.report import (
    SCORE_FUNCTIONS,
    Claim,
    Evidence,
    Report,
    Takeaway,
    above,
    below,
    compared,
    quoted,
    rounds_to,
)
from regard.lab.setting import Setting
from regard.spec.scores import Dot

SMALL, LARGE = (1.0, 2.0, 3.0), (10.0, 20.0, 30.0)
# the weights that the source prints, where, and what it says of the gradient
PRINTED = {
    SMALL: ((0.09, 0.24, 0.67), "[0.09, 0.24, **0.67**]", "Smooth distribution, meaningful gradients"),
    LARGE: ((0.00, 0.00, 1.00), "[0.00, 0.00, **1.00**]", "Saturated! No gradient for training"),
}
FACTORS = (0.1, 0.3, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0)
STEEPEST = 0.25  # no derivative of softmax is larger: w (1 − w) at w = 1/2


def run(setting: Setting) -> Report:
    """Run the experiment."""
    by_factor = {factor: softmax(torch.tensor(SMALL, dtype=torch.float64) * factor) for factor in FACTORS}
    return Report(
        "saturation",
        "What do large scores do to softmax, and to the gradient that must pass through it?",
        (table(by_factor),),
        (picture(by_factor),),
        finding(),
        compared(*claims()),
        setting.record(repetitions=1),
        why="Softmax turns scores into weights, and learning can only move weights that have a derivative.",
        setup="Attention over three keys with the scores [1, 2, 3], and with the same scores times 0.1 to 10. The "
        "weights and their derivatives are computed exactly: ∂w/∂s says by how much a weight changes when a score "
        "does, and training moves scores by it.",
        takeaway=takeaway(),
    )


def softmax(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The weights of these scores, (key,), and their Jacobian ∂weight/∂score, (key, key)."""
    key = scores.double().view(1, 1, -1, 1).requires_grad_()
    row = weights(torch.ones(1, 1, 1, 1, dtype=key.dtype), key, score=Dot())[0, 0, 0]
    jacobian = [torch.autograd.grad(weight, key, retain_graph=True)[0].flatten() for weight in row]
    return row.detach(), torch.stack(jacobian)


def largest(jacobian: Tensor) -> float:
    """The largest change of any weight with any score."""
    return float(jacobian.abs().max())


def table(by_factor: dict[float, tuple[Tensor, Tensor]]) -> Table:
    """Weights and derivative as the same scores grow."""
    rows = [
        (f"{factor:g} · [1, 2, 3]", *row.tolist(), largest(jacobian), float(jacobian.norm()))
        for factor, (row, jacobian) in by_factor.items()
    ]
    columns = ("scores", "weight 1", "weight 2", "weight 3", "largest ∂w/∂s", "norm")
    return Table(columns, rows, "Softmax and its Jacobian (exact: nothing is random here)")


def picture(by_factor: dict[float, tuple[Tensor, Tensor]]) -> Picture:
    """The two examples of the source, and the derivative as the scores grow."""
    series = {
        _name(scores): [round(weight, 4) for weight in softmax(torch.tensor(scores))[0].tolist()] for scores in PRINTED
    }
    bars = Bars(("first", "second", "third"), series, "weight", "Softmax of small and large scores")
    line = Line("", FACTORS, [largest(jacobian) for _, jacobian in by_factor.values()])
    return Panel((bars, Lines([line], "c", "largest ∂w/∂s", "Derivative of softmax at c · [1, 2, 3]", log_y=True)))


def takeaway() -> Takeaway:
    """What large scores do."""
    small, large = (softmax(torch.tensor(scores)) for scores in (SMALL, LARGE))
    return Takeaway(
        "Scores ten times as large give one key all the weight and leave almost no derivative to learn from.",
        "Scores ten times as large leave the weights a derivative to learn from.",
        (
            Evidence(f"largest weight of {_name(LARGE)}", float(large[0].max()), above(0.99)),
            Evidence(
                f"largest ∂w/∂s of {_name(LARGE)} over that of {_name(SMALL)}",
                largest(large[1]) / largest(small[1]),
                below(0.01),
            ),
        ),
    )


def _name(scores: tuple[float, ...]) -> str:
    return f"[{', '.join(f'{score:g}' for score in scores)}]"


def claims() -> tuple[Claim, ...]:
    """Each printed weight, and what is said about gradients."""
    listed = []
    for scores, (figures, row_quote, gradient_quote) in PRINTED.items():
        row, jacobian = softmax(torch.tensor(scores))
        for place, (figure, weight) in enumerate(zip(figures, row.tolist(), strict=True), 1):
            what = f"weight {place} of softmax {_name(scores)}"
            listed.append(Claim(quoted(SCORE_FUNCTIONS, row_quote), what, weight, rounds_to(figure, 2)))
        rule = above(0.1 * STEEPEST) if scores == SMALL else below(0.0)
        what = f"largest derivative of softmax at {_name(scores)}"
        note = f"{100 * largest(jacobian) / STEEPEST:.2g}% of the steepest possible, {STEEPEST}"
        listed.append(Claim(quoted(SCORE_FUNCTIONS, gradient_quote), what, largest(jacobian), rule, note))
    return tuple(listed)


def finding() -> str:
    """One sentence, from the numbers."""
    (small, slope), (large, flat) = (softmax(torch.tensor(scores)) for scores in PRINTED)
    return (
        f"Scores ten times larger raise the largest weight from {float(small.max()):.3f} to {float(large.max()):.5f} "
        f"and cut the largest derivative from {largest(slope):.3f} to {largest(flat):.6f}, "
        f"{largest(slope) / largest(flat):,.0f} times less."
    )
