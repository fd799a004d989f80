"""The printed maps are distributions, and `attend` sees in them what plain sums see."""

import pytest
import torch

from regard.lab.maps import MAPS, SELF, TRANSLATION, PrintedMap


@pytest.mark.parametrize("printed", MAPS, ids=lambda printed: printed.title)
def test_rows_sum_to_one_and_sizes_match(printed: PrintedMap) -> None:
    table = printed.tensor()
    assert table.shape == (len(printed.rows), len(printed.columns))
    assert torch.allclose(table.sum(1), torch.ones(len(table), dtype=table.dtype), rtol=0, atol=1e-12)


@pytest.mark.parametrize("printed", MAPS, ids=lambda printed: printed.title)
def test_statistics_are_those_of_the_weights(printed: PrintedMap) -> None:
    table = printed.tensor()
    seen = printed.statistics("received", "entropy", "peak", "peak_at")
    assert torch.allclose(seen["received"], table.sum(0), rtol=0, atol=1e-12)
    assert torch.allclose(seen["entropy"], -torch.xlogy(table, table).sum(1), rtol=0, atol=1e-12)
    assert torch.allclose(seen["peak"], table.amax(1), rtol=0, atol=1e-12)
    assert torch.equal(seen["peak_at"], table.argmax(1))


def test_grids_carry_the_words() -> None:
    grid = TRANSLATION.grid()
    assert grid.row_labels == ("Le", "chat", "est", "assis", "sur", "le", "tapis")
    assert grid.column_labels == ("The", "cat", "sits", "on", "the", "mat")
    assert grid.limits == (0.0, 1.0)
    assert SELF.grid().row_labels == SELF.grid().column_labels
