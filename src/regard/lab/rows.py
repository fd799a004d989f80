"""rows: what the rows and columns of a map mean, on the two printed maps and on random self-attention.

Row i is what token i gives, and softmax makes it sum to 1. Column j is what token j receives, and nothing bounds it.
With W_Q = W_K the scores are symmetric, the weights are not: ln w_ij − ln w_ji = lse_j − lse_i.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.records import Cell, Panel, Table
from regard.lab.maps import MAPS, SELF, TRANSLATION, PrintedMap, attend_statistics, weights
from regard.lab.report import CONCEPTS, MINI_COURSE, Claim, Compared, Report, confirmed
from regard.lab.setting import Setting
from regard.lab.statistics import mean
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
        (Panel(tuple(printed.grid() for printed in MAPS)),),
        finding(draws),
        (
            Compared(f"{MINI_COURSE}, the printed maps", map_claims(draws["own"])),
            Compared(f"{CONCEPTS}, sections 3 and 9", claims(draws)),
        ),
        setting.record(repetitions),
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


def symmetry(draws: dict[str, RowSumDraws]) -> Table:
    """The largest difference between a pair and its mirror image."""
    names = {"own": "W_Q and W_K of their own", "shared": "one W for both"}
    rows = [(names[key], mean(each.scores), mean(each.weights)) for key, each in draws.items()]
    columns = ("projections", "scores: max |s_ij − s_ji|", "weights: max |w_ij − w_ji|")
    return Table(columns, rows, f"Random self-attention of {TOKENS} tokens, mean and 95% interval")


def map_claims(random: RowSumDraws) -> tuple[Claim, ...]:
    """What the printed maps say about themselves."""
    listed = []
    for printed in MAPS:
        given = printed.tensor().sum(1)
        off = float((given - 1).abs().max())
        verdict = "confirmed" if off < EXACT else f"not confirmed: off by {off:.2g}"
        listed.append(Claim(f"rows sum to 1, {_size(printed)}", "1", float(given.mean()), verdict))
    zeros = sum(int((printed.tensor() == 0).sum()) for printed in MAPS)
    least = float(random.smallest.min())
    verdict = "corrected: rounded, softmax is never 0" if least > 0 else "confirmed"
    listed.append(Claim("weights of exactly 0.0", f"{zeros} of them", least, verdict))
    return tuple(listed)


def claims(draws: dict[str, RowSumDraws]) -> tuple[Claim, ...]:
    """What is said of rows, columns and symmetry."""
    own, shared = draws["own"], draws["shared"]
    off = float((own.row_high - own.row_low).max())
    low, high = mean(own.column_low), mean(own.column_high)
    received = SELF.statistics("received")["received"]
    heaviest = int(received.argmax())
    scores, table = (confirmed(float(each.max()) < EXACT, "corrected") for each in (shared.scores, shared.weights))
    columns = confirmed(low.high < 1 < high.low, "corrected")
    here = f"{SELF.columns[heaviest]} {float(received[heaviest]):.2f}"
    return (
        Claim("row i sums to 1", "1.0", f"1 ± {off:.0e}", confirmed(off < EXACT, "corrected")),
        Claim("column j does not", "≠ 1", f"{low.mean:.2f} to {high.mean:.2f}", columns),
        Claim("column j: attention FROM token j", "from", here, "corrected: attention received BY token j"),
        Claim("W_Q = W_K: scores symmetric", "yes", mean(shared.scores), f"{scores}: max |s_ij − s_ji|"),
        Claim("W_Q = W_K: weights symmetric", "yes", mean(shared.weights), f"{table}: max |w_ij − w_ji|"),
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
