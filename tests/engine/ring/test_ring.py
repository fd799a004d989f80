"""Ring as an engine: one process, groups and meshes, what it refuses, memory, and a long sequence."""

from typing import Any

import pytest
import torch

from regard import attend
from regard.engine.ring import Ring

Workers = Any


def test_one_process_is_the_engine_itself(workers: Workers) -> None:
    assert workers.values("alone")[0] == []


def test_groups_meshes_and_seeds(workers: Workers) -> None:
    assert workers.values("kinds") == [[]] * 8


@pytest.mark.parametrize(
    "what, text",
    [
        ("heads", "same call, with shards that differ in length alone: key heads is "),
        ("dtype", "dtype is float"),
        ("spec", "must make the same call: process "),
        ("dropout", "dropout rate is 0."),
        ("aux", "aux is "),
        ("hard", "a ring merges softmax parts, the normalizer is Hard(); use one process"),
        ("dense", "mask must broadcast to (batch, head, query, key) = (1, 2, 8, 8), got (4, 4)"),
        ("documents", "must make the same call: process "),
        ("start", "must make the same call: process "),
        ("table", "gradients of (query, key, value, spec) is "),
        ("blocks", "Blocks covers query positions 0 to 3 and key positions 0 to 3"),
    ],
)
def test_what_does_not_fit_is_refused_by_all(workers: Workers, what: str, text: str) -> None:
    for answer in workers.values("refused", what=what)[:2]:
        assert text in answer


def test_what_one_refuses_the_others_need_not_wait_for(workers: Workers) -> None:
    """Nor does it hinder the next call."""
    for _ in range(2):
        found = workers.values("refused", what="value")[:2]
        assert found[0] == "process 1 of the ring refused its inputs; its own error says why"
        assert "key and value must have the same length" in found[1]


def test_an_engine_that_refuses_does_so_before_anything_is_sent(workers: Workers) -> None:
    assert workers.values("refused_by_engine") == [""] * 8


def test_who_is_not_in_the_group(workers: Workers) -> None:
    found = workers.values("refused", what="outside")
    assert found[:2] == ["", ""]
    assert all("this process is not in the group of the ring" in text for text in found[2:])


def test_without_processes() -> None:
    with pytest.raises(RuntimeError, match=r"a Ring needs torch\.distributed: start the processes with torchrun"):
        Ring()
    with pytest.raises(ValueError, match=r"engine must be .auto. or one of .* or a Ring, got 3"):
        attend(*torch.zeros(3, 1, 1, 2, 2), engine=3)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "world, mask, dtype, layout",
    [
        (2, None, "float32", "contiguous"),
        (3, "causal", "bfloat16", "zigzag"),
        (4, "causal", "float32", "contiguous"),
    ],
)
def test_memory_as_predicted(workers: Workers, world: int, mask: str | None, dtype: str, layout: str) -> None:
    told = {"length": 3072, "mask": mask, "dtype": dtype, "layout": layout}
    for used, predicted in workers.values("held", world=world, **told)[:world]:
        assert used <= predicted <= 2.2 * used


@pytest.mark.slow
def test_131_072_tokens(workers: Workers) -> None:
    """Four processes, each within a quarter of what one may take; a dense matrix of weights would be 64 GiB."""
    answers = workers.do("long", alone=True, world=4, seconds=1800.0, length=131_072, width=32, megabytes=512, rows=16)
    assert [answer.get("value", answer) for answer in answers] == [""] * 4


def test_numbers_that_are_not_finite(workers: Workers) -> None:
    assert workers.values("poisoned") == [[]] * 8
