"""Parts of a spec survive the way through a string and lists: every part of the shared cases, and hard numbers."""

from typing import Any

import pytest
import torch

from regard.spec import masks, scores
from regard.spec.dropout import Dropout
from regard.spec.serialize import OperatorInputs, decoded, encoded, storable
from regard.testing import BIASES, MASKS, NORMALIZERS, SCORES, TEMPERATURES, Draw, Sizes

FUNCTIONS = {"where", "modified"}
TABLES: dict[str, dict[str, Any]] = {
    "score": SCORES,
    "mask": MASKS,
    "bias": BIASES,
    "normalizer": NORMALIZERS,
    "temperature": TEMPERATURES,
}
PARTS = [(kind, name) for kind, table in TABLES.items() for name in table if name not in FUNCTIONS]


def there_and_back(value: object) -> Any:
    held = OperatorInputs([], [], [])
    text = encoded(value, held)
    return decoded(text, OperatorInputs([tensor.clone() for tensor in held.tensors], held.integers, held.floats))


@pytest.mark.parametrize("kind, name", PARTS)
def test_every_part_comes_back_equal(kind: str, name: str) -> None:
    part = TABLES[kind][name](Sizes(), Draw(0))
    found = there_and_back((part,))
    assert storable(part)
    assert type(found[0]) is type(part)
    if isinstance(part, torch.Tensor):
        assert torch.equal(found[0], part)
    else:
        assert found == (part,)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -(2**63),
        2**63,
        2**64 - 1,
        0.1,
        -0.0,
        5e-324,
        float("inf"),
        "",
        'a "quoted" \\ string\n',
        ("causal", (1, 2.0, None)),
        Dropout(0.25, 2**64 - 1),
        masks.Window(None, 3),
    ],
)
def test_values_come_back_as_they_were(value: object) -> None:
    found = there_and_back(value)
    assert type(found) is type(value)
    assert found == value
    assert repr(found) == repr(value)


def test_the_two_called_dense_are_told_apart() -> None:
    mask = there_and_back(masks.Dense(torch.ones(2, 2, dtype=torch.bool)))
    assert isinstance(mask, masks.Dense)


def test_tensors_are_passed_on_not_copied() -> None:
    weight = torch.randn(3, 3, requires_grad=True)
    held = OperatorInputs([], [], [])
    part = decoded(encoded(scores.General(weight), held), held)
    assert part.weight is weight


@pytest.mark.parametrize(
    "part",
    [masks.Where(lambda b, h, i, j: i >= j), ~masks.Where(lambda b, h, i, j: i >= j), object(), [1], masks.Causal],
    ids=["where", "inside", "object", "list", "class"],
)
def test_what_cannot_be_stored_is_refused_with_advice(part: object) -> None:
    assert not storable(part)
    with pytest.raises(TypeError, match=r"or call attend outside the compiled function"):
        encoded(part, OperatorInputs([], [], []))


def test_a_part_of_someone_else_is_refused() -> None:
    class Mine(masks.Causal):
        pass

    assert not storable(Mine())
    with pytest.raises(ValueError, match=r"the part 'os\.system' is not registered; import the module that defines"):
        decoded('{"part": "os.system", "fields": {"command": "true"}}', OperatorInputs([], [], []))


def test_checks_see_the_numbers_when_a_part_is_made_again() -> None:
    held = OperatorInputs([], [], [])
    text = encoded(masks.Lengths([3, 1]), held)
    with pytest.raises(ValueError, match="Lengths must not be negative, got -1"):
        decoded(text, OperatorInputs([torch.tensor([3, -1])], [], []))
