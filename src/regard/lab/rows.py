"""rows: what the rows and columns of a map mean, on the two printed maps and on random self-attention.

Row i is what token i gives, and softmax makes it sum to 1. Column j is what token j receives, and nothing bounds it.
With W_Q = W_K the scores are symmetric, the weights are not: ln w_ij − ln w_ji = lse_j − lse_i.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.records import Cell, Panel, Table
from regard.lab.maps import MAPS, SELF, TRANSLATION, PrintedMap, attend_statistics, normal, weights
from regard.lab.report import CONCEPTS, MINI_COURSE, Claim, Compared, Report, confirmed
from regard.lab.setting import Setting
from regard.lab.statistics import mean

TOKENS, WIDTH = 6, 16
EXACT = 1e-12  # what float64 leaves of zero here


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
    tokens = normal(generator, repetitions, 1, TOKENS, WIDTH)
    project, other = (normal(generator, repetitions, 1, WIDTH, WIDTH) / math.sqrt(WIDTH) for _ in range(2))
    query = tokens @ project
    key = query if shared else tokens @ other
    ones = torch.ones(repetitions, 1, TOKENS, 1, dtype=tokens.dtype)
    # a value of 1 everywhere makes the output the sum of the row
    row_sums, seen = attend_statistics(query, key, ones, "received")
    scores, table = query @ key.mT / math.sqrt(WIDTH), weights(query, key)
    received = seen["received"].flatten(1)
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
    rows: list[tuple[Cell, ...]] = [(_size(printed), *_extremes(printed)) for printed in MAPS]
    measured = (random.row_low, random.row_high, random.column_low, random.column_high)
    rows.append((f"random {TOKENS} × {TOKENS}", *(mean(each) for each in measured)))
    columns = ("map", "least row sum", "greatest row sum", "least column sum", "greatest column sum")
    return Table(columns, rows, "Sums of weights: a row is what a token gives, a column what it receives")


def _size(printed: PrintedMap) -> str:
    return f"printed {len(printed.rows)} × {len(printed.columns)}"


def _extremes(printed: PrintedMap) -> tuple[float, float, float, float]:
    given, received = printed.tensor().sum(1), printed.statistics("received")["received"]
    return float(given.min()), float(given.max()), float(received.min()), float(received.max())


def symmetry(draws: dict[str, RowSumDraws]) -> Table:
    """The largest difference between a pair and its mirror image."""
    rows = [
        ("W_Q and W_K of their own", mean(draws["own"].scores), mean(draws["own"].weights)),
        ("one W for both", mean(draws["shared"].scores), mean(draws["shared"].weights)),
    ]
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
    seen = TRANSLATION.statistics("received")["received"]
    least, most = int(seen.argmin()), int(seen.argmax())
    scores, table = float(draws["shared"].scores.max()), mean(draws["shared"].weights).mean
    return (
        f"Every row sums to 1 and columns do not: in the translation map {TRANSLATION.columns[least]!r} receives "
        f"{float(seen[least]):.1f} and {TRANSLATION.columns[most]!r} {float(seen[most]):.1f}; with one projection for "
        f"queries and keys, a pair and its mirror image differ by {scores:.1g} in the scores and by up to {table:.2f} "
        "in the weights."
    )
