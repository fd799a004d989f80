"""A setting hands out the same randomness for the same seed, and reports progress."""

import pytest
import torch

from regard.lab.setting import Setting
from regard.progress import reporting_to_user


def test_one_seed_one_stream() -> None:
    first, second = (torch.randn(3, generator=Setting(seed=5).generator()) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, torch.randn(3, generator=Setting(seed=6).generator()))


def test_choose() -> None:
    assert Setting().choose(full=9, quick=1) == 9
    assert Setting(quick=True).choose(full=9, quick=1) == 1


def test_each_reports_before_every_step() -> None:
    reports: list[tuple[str, int, int]] = []
    with reporting_to_user(lambda *step: reports.append(step), ""):
        assert list(Setting().each("d =", (8, 32))) == [8, 32]
    assert reports == [("d = 8", 0, 2), ("d = 32", 1, 2)]


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_seeds_out_of_range(seed: int) -> None:
    with pytest.raises(ValueError, match="seed must be"):
        Setting(seed=seed)
