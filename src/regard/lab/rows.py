"""rows: what the rows and columns of a map mean, on the two printed maps and on random self-attention.

Row i is what token i gives, and softmax makes it sum to 1. Column j is what token j receives, and nothing bounds it.
With W_Q = W_K the scores are symmetric, the weights are not: ln w_ij − ln w_ji = lse_j − lse_i.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.inspection.records import Cell, Panel, Table
from regard.lab.maps import MAPS, SELF, TRANSLATION, PrintedMap, attend_statistics, weights
from regard.lab.report import (
    CONCEPTS,
    MINI_COURSE,
    Claim,
    Evidence,
    Report,
    Takeaway,
    above,
    below,
    compared,
    near,
    quoted,
)
from regard.lab.setting import Setting
from regard.lab.statistics import mean, positive
from regard.lab.symmetry import EXACT, TOKENS, random_projections, scaled_dot


@dataclass(frozen=True)
class RowSumDraws:
    """One number per random self-attention: extreme sums, smallest weight, and how unsymmetric it is at most."""

    row_low: Tensor
    row_high: Tensor
    column_low: Tensor
    column_high: Tensor
    smallest: Tensor
    scores: Tensor
    weights: Tensor


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions = setting.choose(full=1000, quick=100)
    generator = setting.generator()
    draws = {name: draw(generator, repetitions, shared) for name, shared in (("own", False), ("shared", True))}
    return Report(
        "rows",
        "What do the rows and the columns of an attention map add up to, and is a map symmetric?",
        (sums(draws["own"]), symmetry(draws)),
        (picture(),),
        finding(draws),
        compared(*map_claims(), *claims(draws)),
        setting.record(repetitions),
        why="A map of weights is read by rows and by columns, and the two say different things.",
        setup=f"The two maps that the mini-course prints, and {repetitions} random self-attentions of {TOKENS} tokens, "
        "once with W_Q and W_K of their own and once with one matrix for both. A row holds the weights that a token "
        "gives, a column those that it receives.",
        takeaway=takeaway(draws),
    )


def draw(generator: torch.Generator, repetitions: int, shared: bool) -> RowSumDraws:
    """Random tokens and projections; `shared` uses one projection for queries and keys."""
    query, key = random_projections(generator, repetitions, shared)
    # with values of 1, the output is the sum of the row
    row_sums, statistics = attend_statistics(query, key, torch.ones_like(key[..., :1]), "received")
    scores, table = scaled_dot(query, key), weights(query, key)
    received = statistics["received"].flatten(1)
    row_sums = row_sums.flatten(1)
    return RowSumDraws(
        row_sums.amin(1),
        row_sums.amax(1),
        received.amin(1),
        received.amax(1),
        table.amin((1, 2, 3)),
        *((each - each.mT).abs().amax((1, 2, 3)) for each in (scores, table)),
    )


def sums(random: RowSumDraws) -> Table:
    """Smallest and largest sums of rows and columns."""
    rows: list[tuple[Cell, ...]] = []
    for printed in MAPS:
        given, received = printed.tensor().sum(1), printed.statistics("received")["received"]
        rows.append((_size(printed), *map(float, (*given.aminmax(), *received.aminmax()))))
    measured = (random.row_low, random.row_high, random.column_low, random.column_high)
    rows.append((f"random {TOKENS} × {TOKENS}", *map(mean, measured)))
    columns = ("map", "least row sum", "greatest row sum", "least column sum", "greatest column sum")
    return Table(columns, rows, "Sums of weights: a row is what a token gives, a column what it receives")


def _size(printed: PrintedMap) -> str:
    return f"printed {len(printed.rows)} × {len(printed.columns)}"


def picture() -> Panel:
    """The two maps with the sums of their rows and columns at the margins."""
    maps = [
        replace(
            printed.grid(),
            margins=(printed.tensor().sum(1).tolist(), printed.statistics("received")["received"].tolist()),
            note="bars: sums of rows (right) and of columns (below)",
            names=("looks", "is looked at", "weight"),
        )
        for printed in MAPS
    ]
    return Panel(maps, "Rows sum to 1, columns do not")


def symmetry(draws: dict[str, RowSumDraws]) -> Table:
    """The largest difference between a pair and its mirror image."""
    names = {"own": "W_Q and W_K of their own", "shared": "one W for both"}
    rows = [(names[key], mean(each.scores), mean(each.weights)) for key, each in draws.items()]
    columns = ("projections", "scores: max |s_ij − s_ji|", "weights: max |w_ij − w_ji|")
    return Table(columns, rows, f"Random self-attention of {TOKENS} tokens, mean and 95% interval")


def map_claims() -> tuple[Claim, ...]:
    """What the printed maps say about themselves."""
    listed = []
    softmax = quoted(MINI_COURSE, "Then, a softmax function is applied to obtain a probability distribution")
    for printed in MAPS:
        off = float((printed.tensor().sum(1) - 1).abs().max())
        listed.append(Claim(softmax, f"largest |row sum − 1| of the map {_size(printed)}", off, below(EXACT)))
    return tuple(listed)


def claims(draws: dict[str, RowSumDraws]) -> tuple[Claim, ...]:
    """What is said of rows, columns and symmetry."""
    own, shared = draws["own"], draws["shared"]
    off = float((own.row_high - own.row_low).max())
    apart = own.column_high - own.column_low
    received = SELF.statistics("received")["received"]
    heaviest = int(received.argmax())
    gives = f"what {SELF.columns[heaviest]!r} receives in the map {_size(SELF)} (what it gives is 1)"
    equal = quoted(CONCEPTS, "Attention(A→B) = Attention(B→A)")
    symmetric = quoted(CONCEPTS, "If Q = K (same projection), attention would be **symmetric**")
    note = "its sum is not 1, so it is what token j receives; the attention FROM token j is row j"
    return (
        Claim(quoted(CONCEPTS, "Sums to 1.0"), "largest difference between two row sums", off, below(EXACT)),
        Claim(
            quoted(CONCEPTS, "Doesn't sum to 1"), "greatest − least column sum of a map", positive(apart), above(EXACT)
        ),
        Claim(
            quoted(CONCEPTS, "All tokens' attention FROM token j"),
            gives,
            float(received[heaviest]),
            near(1.0, EXACT),
            note,
        ),
        Claim(symmetric, "max |s_ij − s_ji| of the scores, W_Q = W_K", float(shared.scores.max()), below(EXACT)),
        Claim(equal, "max |w_ij − w_ji| of the weights, W_Q = W_K", positive(shared.weights), below(EXACT)),
    )


def takeaway(draws: dict[str, RowSumDraws]) -> Takeaway:
    """What rows and columns add up to."""
    own = draws["own"]
    return Takeaway(
        "Every row of weights sums to 1; columns do not, and the map of weights is not symmetric even if queries equal "
        "keys.",
        "Rows of weights do not sum to 1 here, or columns do too.",
        (
            Evidence("largest |row sum − 1|", float((own.row_high - 1).abs().max()), below(EXACT)),
            Evidence("greatest − least column sum of a map", positive(own.column_high - own.column_low), above(0.1)),
            Evidence("max |w_ij − w_ji| with W_Q = W_K", positive(draws["shared"].weights), above(0.01)),
        ),
    )


def finding(draws: dict[str, RowSumDraws]) -> str:
    """One sentence, from the numbers."""
    received = TRANSLATION.statistics("received")["received"]
    least, most = int(received.argmin()), int(received.argmax())
    scores, table = float(draws["shared"].scores.max()), mean(draws["shared"].weights).mean
    return (
        f"Every row sums to 1 and columns do not: in the translation map {TRANSLATION.columns[least]!r} receives "
        f"{float(received[least]):.1f} and {TRANSLATION.columns[most]!r} {float(received[most]):.1f}; with one "
        f"projection for queries and keys, a pair and its mirror image differ by {scores:.1g} in the scores and by up "
        f"to {table:.2f} in the weights."
    )
