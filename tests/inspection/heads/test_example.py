"""The example finds what is known of a real model; skipped where the model is not."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "induction_heads.py"


@pytest.mark.slow
def test_induction_heads_are_found_in_a_real_model(tmp_path: Path, get_model: Callable[[str], Path]) -> None:
    get_model("smollm2")
    figure = tmp_path / "heads.svg"
    call = [sys.executable, str(EXAMPLE), "--tokens", "24", "--texts", "2", "--out", str(figure)]
    found = subprocess.run(call, capture_output=True, text=True, timeout=900, check=False)
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert lines[0] == "270 heads in 30 layers; 2 texts of 1 + 2 × 24 tokens"
    first, second = (float(part.split()[0]) for part in lines[1].removeprefix("loss: ").split("first time, "))
    assert second < 0.5 * first
    tables = {lines[at].removeprefix("most "): lines[at + 3] for at in range(len(lines)) if lines[at][:5] == "most "}
    layer, _, induction, *_ = tables["induction"].split()
    assert int(layer) in range(15, 25)
    assert float(induction) > 0.6
    layer, head, _, previous, *_ = tables["previous"].split()
    assert (int(layer), int(head)) in {(16, 0), (11, 1)}
    assert float(previous) > 0.7
    layer, head, _, _, rests, _ = tables["first"].split()
    assert (int(layer), int(head)) == (18, 8)
    assert float(rests) > 0.9
    assert "induction" in figure.read_text(encoding="utf-8")
