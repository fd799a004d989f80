"""The benchmark compares before it times, and counts what it says."""

import json
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from regard.bench.cases import CASES
from regard.bench.measure import in_turns, measure
from regard.cli import main


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_case_runs_and_agrees(name: str) -> None:
    ours, peer = measure(CASES[name], length=97, rounds=1)
    assert ours.contender == "regard auto"
    assert peer.contender == CASES[name].peer_name
    assert ours.error is not None
    assert 0 <= ours.error < 1e-5
    assert ours.seconds > 0
    assert ours.mebibytes >= 0


def test_a_wrong_contender_is_not_timed() -> None:
    wrong = replace(CASES["causal"], peer=lambda n, heads: lambda x: scaled_dot_product_attention(*x))
    with pytest.raises(RuntimeError, match="is wrong"):
        measure(wrong, length=97, rounds=1)


def test_a_contender_that_gives_nan_is_not_timed() -> None:
    broken = replace(CASES["dense"], peer=lambda n, heads: lambda x: torch.full_like(x[0], torch.nan))
    with pytest.raises(AssertionError, match="NaN"):
        measure(broken, length=97, rounds=1)


def test_contenders_take_turns() -> None:
    order: list[str] = []
    best = in_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 3)
    assert order == ["a", "b"] * 3
    assert set(best) == {"a", "b"}


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "dense", "--length", "64", "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["contender"] for row in found["results"]} == {"regard auto", "torch SDPA"}
    assert found["product_gflops"] > 0


def test_an_unknown_case_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "quick"]) == 1
    assert "no case quick; the cases are dense" in capsys.readouterr().err
