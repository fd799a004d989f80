"""Nested lists become tensors; what cannot is named."""

import pytest
import torch

from regard.inspection.explain.numbers import matrix, tensor_of


def test_kinds() -> None:
    assert tensor_of("m", [[True, False]]).dtype == torch.bool
    assert tensor_of("m", [1, 2]).dtype == torch.int64
    assert tensor_of("m", [1, 2.5]).dtype == torch.float64
    assert matrix("m", [1, 2]).dtype == torch.float64
    assert matrix("m", ((1, 2), (3, 4))).tolist() == [[1, 2], [3, 4]]
    assert matrix("m", [[0, "-inf"]]).tolist() == [[0, -torch.inf]]
    assert matrix("m", [[], []]).shape == (2, 0)


def test_tensors_and_arrays_stay_as_they_are() -> None:
    tensor = torch.ones(2, 2, dtype=torch.float16)
    assert matrix("m", tensor) is tensor
    assert matrix("m", tensor.numpy()).dtype == torch.float16


@pytest.mark.parametrize(
    "value, error, message",
    [
        ([[1, 0], [1]], ValueError, "^x must have rows of one length: row 0 has 2 entries, row 1 has 1$"),
        ([[[1], [2]], [[1], [2, 3]]], ValueError, r"^x\[1\] must have rows of one length"),
        ([[[1, 2]], [[1]]], ValueError, r"^x must have parts of one shape, got \(1, 2\), \(1, 1\)$"),
        ([1, [2]], ValueError, "^x mixes rows and numbers; write every row in brackets"),
        ([["a"]], TypeError, "^x must hold numbers, got 'a'$"),
        ([[None]], TypeError, "^x must hold numbers, got None$"),
        ("12", TypeError, "^x must be a tensor or rows of numbers .* got str$"),
        (3, TypeError, "^x must be a tensor or rows of numbers .* got int$"),
        ([[True, False]], TypeError, "^x must be numbers, got true and false$"),
        ([[10**400]], ValueError, "^x must hold numbers of ordinary size"),
    ],
)
def test_what_is_refused(value: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        matrix("x", value)


def test_bools_and_numbers_do_not_mix() -> None:
    with pytest.raises(TypeError, match="not both"):
        tensor_of("x", [True, 2])
