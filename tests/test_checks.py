"""The argument checks: what passes, what is refused, and with which words."""

import re
from collections.abc import Callable

import pytest
import torch

from regard import checks

FAILURES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: checks.is_tensor("x", None), TypeError, "x must be a torch.Tensor, got NoneType; it is missing"),
    (lambda: checks.is_tensor("x", [1]), TypeError, "x must be a torch.Tensor, got list; wrap it with torch.as_tensor"),
    (lambda: checks.is_tensor("x", torch.eye(2).to_sparse()), TypeError, "x must be a dense tensor, got a sparse or"),
    (lambda: checks.is_float("x", torch.ones(1).long()), TypeError, "got int64; convert it with .float()"),
    (lambda: checks.is_float("x", torch.ones(1).bool()), TypeError, "x must be float32, float64, bfloat16 or float16"),
    (lambda: checks.is_float("x", torch.ones(1).to(torch.float8_e5m2)), TypeError, "got float8_e5m2"),
    (lambda: checks.float_tensors("Part", {"w": 3}), TypeError, "Part's w must be a torch.Tensor, got int"),
    (lambda: checks.float_tensors("Part", {"w": torch.ones(1).int()}), TypeError, "Part's w must be float32"),
    (
        lambda: checks.same_device([("w", torch.ones(1, device="meta"))], torch.device("cpu")),
        ValueError,
        "w must be on the device of the inputs, cpu, got meta; move it with .to(query.device) before the call",
    ),
    (
        lambda: checks.same_kind({"a": torch.ones(1), "b": torch.ones(1).half()}),
        TypeError,
        "a, b must share one dtype, got a float32, b float16; move them with .to(a.dtype) before the call",
    ),
    (
        lambda: checks.same_kind({"a": torch.ones(1), "b": torch.ones(1, device="meta")}),
        ValueError,
        "a, b must share one device, got a cpu, b meta; move them with .to(a.device) before the call",
    ),
    (lambda: checks.number("x", "1"), TypeError, "x must be a number, got str"),
    (lambda: checks.number("x", True), TypeError, "x must be a number, got bool"),
    (lambda: checks.number("x", float("nan")), ValueError, "x must be finite, got nan"),
    (lambda: checks.number("x", -float("inf")), ValueError, "x must be finite, got -inf"),
    (lambda: checks.number("x", 10**400), ValueError, "x must be finite, got 2**1328 or more"),
    (lambda: checks.number("x", -(10**5000)), ValueError, "x must be finite, got −2**16609 or more"),
    (lambda: checks.whole("x", 2**63), ValueError, "x must be at most 2**63 - 1, got 9223372036854775808"),
    (lambda: checks.whole("x", -(2**63) - 1), ValueError, "x must be at least -2**63, got -9223372036854775809"),
    (lambda: checks.whole("x", 17, most=16), ValueError, "x must be at most 16, got 17"),
    (lambda: checks.positive("x", 0), ValueError, "x must be a finite number above 0, got 0"),
    (lambda: checks.positive("x", -1e-300), ValueError, "x must be a finite number above 0, got -1e-300"),
    (lambda: checks.positive("x", float("inf")), ValueError, "x must be finite, got inf"),
    (lambda: checks.whole("x", 1.0), TypeError, "x must be an int, got float; convert it with int(...)"),
    (lambda: checks.whole("x", True), TypeError, "x must be an int, got bool"),
    (lambda: checks.whole("x", "1"), TypeError, "x must be an int, got str"),
    (lambda: checks.whole("x", 2, least=3), ValueError, "x must be at least 3, got 2"),
]


@pytest.mark.parametrize(("call", "error", "text"), FAILURES)
def test_what_is_refused(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()


def test_what_passes() -> None:
    tensor = torch.ones(2, 3)
    assert checks.is_tensor("x", tensor) is tensor
    assert checks.is_tensor("x", torch.nn.Parameter(tensor)).shape == (2, 3)
    for dtype in checks.FLOATS:
        checks.is_float("x", tensor.to(dtype))
    checks.float_tensors("Part", {"a": tensor, "b": tensor.half()})
    checks.same_device([("a", tensor)], tensor.device)
    checks.same_kind({"a": tensor, "b": tensor + 1})
    assert checks.number("x", -2) == -2
    assert checks.positive("x", 1e-300) == 1e-300
    assert checks.whole("x", -7) == -7
    assert checks.whole("x", 3, least=3) == 3


def test_shapes_and_dtypes_read_as_a_user_writes_them() -> None:
    assert checks.shape(torch.ones(2, 8, 3)) == "(2, 8, 3)"
    assert checks.shape(torch.ones(4)) == "(4,)"
    assert checks.shape(torch.tensor(1.0)) == "()"
    assert checks.dtype(torch.ones(1, dtype=torch.bfloat16)) == "bfloat16"
