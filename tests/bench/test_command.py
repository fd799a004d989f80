"""`regard bench`: cases by name, pattern and size; table, JSON and picture; what goes wrong is said."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import transformers

from regard.bench import cases
from regard.bench.agree import DisagreementError
from regard.bench.cache import Contest
from regard.bench.cache import measure as measure_cache
from regard.bench.cache import table as table_of_cache
from regard.bench.cases import Workload
from regard.bench.measure import CaseResult, Settings, measure
from regard.cli import bench, main
from regard.nn import LanguageModel, Rotary

BRIEF = ["--rounds", "1", "--quick"]


def test_json_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "dense-1024-64", "--length", "64", *BRIEF, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"processor", "cores", "threads", "isa", "torch", "date"} < found["machine"].keys()
    (result,) = found["results"]
    assert result["case"] == "dense-64-64"
    assert result["shape"]["heads"] == 8
    assert [each["contender"] for each in result["contenders"]] == ["regard", "torch SDPA", "eager"]
    ours, sdpa = result["contenders"][:2]
    assert ours["seconds"] > 0
    assert sdpa["ratio"] == pytest.approx(sdpa["seconds"] / ours["seconds"])
    assert not found["interrupted"]


def test_table_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--n", "32,64", "--d", "16", "--heads", "2", "--mask", "window:8,0"]
    files = ["--json", str(tmp_path / "b.json"), "--plot", str(tmp_path / "b.svg")]
    assert main(["bench", *sizes, *BRIEF, *files]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0].split()[:2] == ["case", "regard"]
    assert "own-32-16" in text
    assert "own-64-16" in text
    assert "torch 2" in text.splitlines()[-1]
    assert len(json.loads((tmp_path / "b.json").read_text())["results"]) == 2
    assert "<svg" in (tmp_path / "b.svg").read_text()
    assert {file.name for file in tmp_path.iterdir()} == {"b.json", "b.svg"}


def test_reasons_stand_below_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "tiny-train", *BRIEF, "--peer", "flex", "--markdown"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("| case | regard | compiled Flex |")
    assert "– compiled Flex: it cannot train on a CPU (tiny-train-16-16)" in text


def test_wrong_numbers_end_in_failure_after_the_other_cases(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong_once(case: Workload, settings: Settings) -> CaseResult:
        if case.family == "tiny":
            raise DisagreementError("somebody is wrong on tiny-16-16")
        return measure(case, settings)

    monkeypatch.setattr(bench, "measure", wrong_once)
    assert main(["bench", "tiny", "tiny-train", *BRIEF]) == 1
    out, err = capsys.readouterr()
    assert "somebody is wrong" in err
    assert "WRONG: somebody is wrong" in out
    assert "tiny-train-16-16" in out


def test_ctrl_c_ends_with_the_results_so_far(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(case: Workload, settings: Settings) -> CaseResult:
        if case.family == "tiny-train":
            raise KeyboardInterrupt
        return measure(case, settings)

    monkeypatch.setattr(bench, "measure", stopped)
    assert main(["bench", "--case", "tiny*", *BRIEF]) == 130
    text = capsys.readouterr().out
    assert "tiny-16-16" in text
    assert "interrupted: 1 cases were complete" in text


def test_cases_by_name_family_pattern_and_size() -> None:
    def names(*patterns: str, **sizes: object) -> list[str]:
        return [case.name for case in cases.choose(patterns, **sizes)]  # type: ignore[arg-type]

    assert names("dense") == ["dense-1024-64", "dense-1024-128", "dense-4096-64", "dense-4096-128"]
    assert names("train-causal-*", "tiny") == ["train-causal-4096-64", "train-causal-2048-128", "tiny-16-16"]
    assert names("past", lengths=[512, 1024]) == ["past-512-64", "past-1024-64"]
    assert names("causal", lengths=[512], d=32) == ["causal-512-32"]
    assert names() == list(cases.CASES)


@pytest.mark.parametrize(
    "given, words",
    [
        (["quick"], "no case quick; the cases are dense"),
        (["--mask", "triangle"], "--mask must be full, causal or window:BEFORE,AFTER, got 'triangle'"),
        (["--mask", "window:x"], "takes two whole numbers"),
        (["dense", "--mask", "causal"], "name no case with them"),
        (["--json", "dense"], "ends in .json"),
        (["--n", "64", "--heads", "0"], "--heads must be above 0"),
        (["dense", "--rounds", "0"], "--rounds must be above 0"),
        (["cache", "--rounds", "0"], "--rounds must be above 0"),
    ],
)
def test_wrong_use_is_explained(given: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *given]) == 1
    assert words in capsys.readouterr().err


def test_the_list_names_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]]
    assert listed == [*cases.CASES, "cache"]


def test_the_cache_is_a_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LanguageModel(50, layers=2, d_model=32, heads=4, position=Rotary(8)).eval()
    monkeypatch.setattr(bench, "_contest", lambda: Contest("a small model", model, reason="not asked"))
    files = ["--json", str(tmp_path / "c.json"), "--plot", str(tmp_path / "c.svg")]
    assert main(["bench", "cache", "--n", "16,64", "--rounds", "1", *files]) == 0
    text = capsys.readouterr().out
    assert "tokens before" in text
    assert "– transformers: not asked" in text
    points = json.loads((tmp_path / "c.json").read_text())["points"]
    assert [point["length"] for point in points] == [16, 64]
    assert all(point["cached"] > 0 and point["uncached"] > 0 and point["peer_cached"] is None for point in points)
    assert "<svg" in (tmp_path / "c.svg").read_text()


def test_both_sides_of_the_cache_bench_are_the_same_model() -> None:
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4
    )
    peer = transformers.LlamaForCausalLM(config).eval()
    model = LanguageModel(50, layers=2, d_model=32, heads=4, position=Rotary(8)).eval()
    point = measure_cache(Contest("small", model, peer), 12, 1.0, 2)
    assert point.peer_prefill
    assert point.peer_cached
    assert "×" in str(table_of_cache([point]).rows[0][4])


def test_a_share_above_the_peak_is_named_as_skipped_work() -> None:
    result = measure(cases.CASES["tiny-16-16"], Settings(budget=0.01, rounds=1, peers=(), memory=False))
    assert result.ours.seconds is not None
    slow, fast = (replace(result, peak_flops=result.flops / result.ours.seconds * factor) for factor in (2, 0.5))
    column = bench.result_table([slow, fast])["of peak"]
    assert column == ["50%", "skips pairs"]
