"""The public names equal a list."""

import pytest

import regard

PUBLIC = [
    "AttentionMatrix",
    "Aux",
    "Capture",
    "Dropout",
    "Ring",
    "RingPeerLost",
    "__version__",
    "accelerating",
    "attend",
    "biases",
    "capture",
    "effect",
    "explain",
    "hf",
    "intervene",
    "interventions",
    "lab",
    "load",
    "masks",
    "matrix",
    "models",
    "nn",
    "normalizers",
    "plan",
    "play",
    "positions",
    "rollout",
    "scores",
    "sdpa",
    "see",
]


def test_all_is_the_list() -> None:
    assert sorted(regard.__all__) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_name_resolves(name: str) -> None:
    assert getattr(regard, name) is not None


def test_dir_shows_the_list() -> None:
    assert set(PUBLIC) <= set(dir(regard))


def test_unknown_name_is_an_attribute_error() -> None:
    name = "attention_please"
    with pytest.raises(AttributeError, match=name):
        getattr(regard, name)
