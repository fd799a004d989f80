"""Rows and columns: sums, and what a shared projection does and does not make symmetric."""

import math
from collections.abc import Callable

import pytest
import torch

from regard.inspection.records import Grid, Panel
from regard.lab.maps import attend_statistics, normal, weights
from regard.lab.report import Report
from regard.lab.rows import draw

Quick = Callable[[str], Report]


def test_rows_sum_to_one_and_columns_do_not() -> None:
    draws = draw(torch.Generator().manual_seed(0), 50, shared=False)
    assert float((draws.row_low - 1).abs().max()) < 1e-12
    assert float((draws.row_high - 1).abs().max()) < 1e-12
    assert float(draws.column_high.min()) > 1 > float(draws.column_low.max())
    assert float(draws.smallest.min()) > 0


def test_a_shared_projection_makes_scores_symmetric_and_weights_not() -> None:
    own, shared = (draw(torch.Generator().manual_seed(0), 50, shared) for shared in (False, True))
    assert float(shared.scores.max()) < 1e-12
    assert float(shared.weights.min()) > 0.01
    assert float(own.scores.min()) > 0.1


def test_the_asymmetry_is_the_difference_of_the_row_sums() -> None:
    """With symmetric scores, ln w_ij − ln w_ji = lse_j − lse_i."""
    tokens = normal(torch.Generator().manual_seed(0), 1, 1, 7, 5)
    table = weights(tokens, tokens)[0, 0]
    _, seen = attend_statistics(tokens, tokens, tokens, "lse")
    lse = seen["lse"][0, 0]
    assert torch.allclose(table.log() - table.mT.log(), lse - lse.unsqueeze(1), rtol=0, atol=1e-12)


def test_the_printed_maps_are_the_picture(quick: Quick) -> None:
    panel = quick("rows").pictures[0]
    assert isinstance(panel, Panel)
    first, second = panel.pictures
    assert isinstance(first, Grid)
    assert isinstance(second, Grid)
    assert [math.fsum(value or 0 for value in row) for row in second.values] == [1.0] * 7
    given, received = second.margins
    assert list(given) == pytest.approx([1.0] * 7)
    assert list(received) == pytest.approx([math.fsum(row[place] or 0 for row in second.values) for place in range(6)])


def test_the_slips_are_corrected(quick: Quick) -> None:
    verdicts = {claim.quote.plain: claim.outcome for part in quick("rows").compared for claim in part.claims}
    assert verdicts["All tokens' attention FROM token j"].startswith("corrected: its sum is not 1")
    assert verdicts["Attention(A→B) = Attention(B→A)"] == "corrected"
    assert verdicts["If Q = K (same projection), attention would be symmetric"] == "confirmed"
