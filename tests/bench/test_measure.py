"""The benchmark compares before it times, and counts what it says."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from regard.bench import measure as measuring
from regard.bench.agree import DisagreementError
from regard.bench.cases import CASES, Inputs, Work, Workload, choose
from regard.bench.contenders import EAGER, FLEX, SDPA, Contender, contenders
from regard.bench.device import Device
from regard.bench.measure import Settings, against_one_best, measure

ONCE = Settings(rounds=1, peers=("sdpa", "eager"), memory=False)
SHORT = {case.family: case.sized(n=97) for case in reversed(CASES.values())}


@pytest.mark.parametrize("family", SHORT)
def test_every_case_runs_and_agrees(family: str) -> None:
    result = measure(SHORT[family], ONCE)
    scores = {score.contender: score for score in result.scores}
    assert result.ours.contender == "regard"
    assert result.ours.seconds is not None
    assert result.ours.seconds > 0
    assert result.ours.error is not None
    assert result.ours.error < (1e-3 if family == "bfloat16" else 1e-6)
    assert {SDPA, EAGER} < scores.keys()
    assert (scores[SDPA].reason is not None) == (SHORT[family].activation is not None)
    assert (scores[EAGER].error is None) == family.startswith("dropout")
    assert result.flops > 0


def _also(case: Workload, work: Work, name: str = "wrong") -> list[Contender]:
    return [*contenders(case, peers=()), Contender(name, lambda case, inputs: work)]


@pytest.mark.parametrize(
    "work",
    [lambda x: x[2].mean(-2, keepdim=True).expand_as(x[2]), lambda x: torch.full_like(x[0], torch.nan)],
    ids=["another result", "NaN"],
)
def test_wrong_numbers_are_loud(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "contenders", lambda case, engines, peers: _also(case, work))
    with pytest.raises(DisagreementError, match=r"wrong is wrong on causal-97-64, nothing was timed: .*(error|NaN)"):
        measure(SHORT["causal"], ONCE)


def test_a_wrong_gradient_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(x: Inputs) -> Tensor:
        out: Tensor = (x[0] * 0.125 @ x[1].detach().mT).softmax(-1) @ x[2] + 0 * x[1]
        return out

    monkeypatch.setattr(measuring, "contenders", lambda case, engines, peers: _also(case, blind))
    with pytest.raises(DisagreementError, match="gradient: error"):
        measure(SHORT["train"], ONCE)


def test_a_peer_that_fails_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(x: Inputs) -> Tensor:
        raise NotImplementedError("not on\nthis machine")

    monkeypatch.setattr(measuring, "contenders", lambda case, engines, peers: _also(case, fails, "peer"))
    peer = measure(SHORT["dense"], ONCE).scores[-1]
    assert peer.seconds is None
    assert peer.reason == "NotImplementedError: not on"


def test_flex_says_what_it_cannot() -> None:
    settings = replace(ONCE, peers=("flex",))
    for family, reason in (("train", "train"), ("dropout", "dropout"), ("additive", "q·k")):
        flex = next(s for s in measure(SHORT[family], settings).scores if s.contender == FLEX)
        assert flex.reason is not None
        assert reason in flex.reason


def test_tables_over_all_pairs_are_not_tried_at_any_length() -> None:
    case = choose(["past-65536-64"])[0]
    assert all(each.refuses(case) for each in contenders(case) if not each.ours)


def test_flops_count_visible_pairs() -> None:
    assert SHORT["dense"].flops() == 2 * 8 * 97 * 97 * 128
    assert SHORT["causal"].flops() == 2 * 8 * 97 * 98 / 2 * 128
    assert SHORT["train"].flops() == 3.5 * SHORT["dense"].flops()
    assert SHORT["wide"].flops() == 1.5 * SHORT["dense"].flops()


def test_cold_caches_together_exceed_the_cache_twice() -> None:
    case = CASES["decode-8192-128"]
    cache = 48 << 20
    assert (case.sets(cache) - 1) * case.bytes_read() >= 2 * cache
    assert CASES["dense-1024-64"].sets(cache) == 1


def test_statistics_stand_beside_the_plain_forward() -> None:
    names = [score.contender for score in measure(SHORT["statistics"], ONCE).scores]
    assert names[:2] == ["regard", "regard, plain dense"]


def test_shares_are_of_the_best_of_the_whole_run() -> None:
    quiet = measure(SHORT["tiny"], ONCE)
    noisy = replace(quiet, peak_flops=1e9)
    shares = [each.share(each.ours) for each in against_one_best([noisy, replace(quiet, peak_flops=2e9)])]
    assert quiet.ours.seconds is not None
    assert shares == [pytest.approx(quiet.flops / quiet.ours.seconds / 2e9)] * 2


def test_memory_is_seen_from_outside() -> None:
    case = SHORT["dense"].sized(n=509)
    ours, eager = (Device().extra_bytes(case, each) for each in contenders(case, peers=("eager",)))
    if ours is None or eager is None:
        pytest.skip("the system does not tell what a process holds")
    logits = 8 * 509 * 509 * 4
    assert math.isfinite(ours)
    assert 0 < ours < logits < eager < 4 * logits
