"""The catalog: complete, frozen, and helpful about names."""

import dataclasses
import re

import pytest

from regard import models
from regard.models.catalog import find


def test_every_entry_is_pinned_and_named_once() -> None:
    names = [model.name for model in models.known()]
    assert names == ["minilm", "smollm2"]
    for model in models.known():
        assert re.fullmatch("[0-9a-f]{64}", model.sha256)
        assert model.license == "Apache-2.0"
        assert min(model.download, model.disk) > 80e6


def test_records_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        models.known()[0].name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    "name, text",
    [
        ("minilmm", "there is no model 'minilmm'; did you mean 'minilm'? there are minilm, smollm2"),
        ("gpt-5", "there is no model 'gpt-5'; there are minilm, smollm2"),
    ],
)
def test_an_unknown_name_lists_the_known_ones(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        find(name)
    with pytest.raises(ValueError, match=re.escape(text)):
        models.path(name)


def test_the_origin_changes_with_the_recipe() -> None:
    model = find("minilm")
    assert dataclasses.replace(model, revision=2).origin != model.origin
