"""Softmax of the two printed vectors, and its Jacobian."""

from collections.abc import Callable

import pytest
import torch

from regard.lab.report import Report
from regard.lab.saturation import LARGE, PRINTED, SMALL, largest, softmax


@pytest.mark.parametrize("scores", PRINTED)
def test_weights_round_to_the_printed_figures(scores: tuple[float, float, float]) -> None:
    row, _ = softmax(torch.tensor(scores))
    assert tuple(round(weight, 2) for weight in row.tolist()) == PRINTED[scores][0]


@pytest.mark.parametrize("scores", [SMALL, LARGE, (0.0, -2.0, 5.0, 5.0)])
def test_the_jacobian_is_the_formula(scores: tuple[float, ...]) -> None:
    row, jacobian = softmax(torch.tensor(scores))
    plain = torch.tensor(scores, dtype=torch.float64).softmax(0)
    assert torch.allclose(row, plain, rtol=1e-12, atol=0)
    assert torch.allclose(jacobian, plain.diag() - plain.outer(plain), rtol=0, atol=1e-15)


def test_known_values() -> None:
    assert largest(softmax(torch.tensor(SMALL))[1]) == pytest.approx(0.2227, abs=5e-5)
    assert largest(softmax(torch.tensor(LARGE))[1]) == pytest.approx(4.5396e-5, rel=1e-3)


def test_every_printed_weight_is_confirmed(quick: Callable[[str], Report]) -> None:
    claims = quick("saturation").compared[0].claims
    assert [claim.verdict for claim in claims if claim.measured.startswith("weight")] == ["confirmed"] * 6
