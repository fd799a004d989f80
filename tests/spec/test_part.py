"""Parts of a spec: text, equality by content, hash by identity."""

from dataclasses import FrozenInstanceError, dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from regard.spec.part import Part


@dataclass(frozen=True, eq=False, repr=False)
class Sample(Part):
    table: Tensor | None
    size: int
    inner: tuple["Sample", ...] = ()
    scale: float = 1.0
    fn: object = None


@dataclass(frozen=True, eq=False, repr=False)
class Other(Sample):
    pass


def double(x: float) -> float:
    return 2 * x


def test_text_leaves_defaults_out_and_names_what_is_not_required() -> None:
    assert repr(Sample(None, 3)) == "Sample(None, 3)"
    assert repr(Sample(torch.arange(3), 3, scale=0.5)) == "Sample([0, 1, 2], 3, scale=0.5)"
    assert repr(Sample(None, 3, inner=(Sample(None, 5),))) == "Sample(None, 3, inner=(Sample(None, 5),))"
    assert repr(Sample(None, 3, fn=double)) == "Sample(None, 3, fn=double)"


def test_text_of_tensors() -> None:
    assert repr(Sample(torch.tensor(2.5), 3)) == "Sample(2.5, 3)"
    assert repr(Sample(torch.zeros(9), 3)) == "Sample(<9 float32>, 3)"
    assert repr(Sample(torch.zeros(2, 3, dtype=torch.bool), 3)) == "Sample(<2×3 bool>, 3)"


def test_equality_is_by_content() -> None:
    assert Sample(torch.arange(3), 3) == Sample(torch.arange(3), 3)
    assert Sample(None, 3, inner=(Sample(torch.ones(2), 5),)) == Sample(None, 3, inner=(Sample(torch.ones(2), 5),))
    assert Sample(None, 3, fn=double) == Sample(None, 3, fn=double)


@pytest.mark.parametrize(
    "other",
    [
        Sample(torch.arange(3), 5),
        Sample(torch.arange(4), 3),
        Sample(torch.tensor([0, 1, 5]), 3),
        Sample(torch.arange(3, dtype=torch.int32), 3),
        Sample(torch.arange(3).view(1, 3), 3),
        Sample(None, 3),
        Sample(torch.arange(3), 3, inner=(Sample(None, 3),)),
        Other(torch.arange(3), 3),
        "Sample([0, 1, 2], 3)",
    ],
    ids=repr,
)
def test_anything_else_is_different(other: object) -> None:
    assert Sample(torch.arange(3), 3) != other


def test_a_tensor_that_holds_nan_is_not_equal_to_itself() -> None:
    assert Sample(torch.tensor([torch.nan]), 3) != Sample(torch.tensor([torch.nan]), 3)


def test_hash_is_by_identity() -> None:
    one, two = Sample(None, 3), Sample(None, 3)
    assert hash(one) == hash(one)
    assert len({one, two}) == 2


def test_parts_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Sample(None, 3).size = 5  # type: ignore[misc]


@dataclass(frozen=True, eq=False, repr=False)
class Limited(Part):
    """A part with a constant of its class."""

    width: int
    FAR: ClassVar[float] = 1e300


def test_constants_of_a_class_are_not_contents() -> None:
    assert Limited(3).attributes == {"width": 3}
    assert Limited(3).contents == (Limited, 3)
    assert repr(Limited(3)) == "Limited(3)"
