"""Private names of torch: this release has them all; a newer one that lacks some is reported once, and runs."""

import re
import subprocess
import sys
import warnings

import pytest
import torch

from regard.engine import torch_names


def test_this_torch_has_them_all() -> None:
    assert torch_names.missing_names() == {}


def test_a_newer_release_that_lacks_some_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "3.1.0a0+git12")
    monkeypatch.setitem(torch_names.PRIVATE, "pictures", ("_C._no_such_name", "_no_such_module.name", "float32"))
    text = (
        "torch 3.1.0a0+git12 is newer than 2.15, the newest that this regard was tested with, and lacks what these "
        "need: pictures (torch._C._no_such_name, torch._no_such_module.name); take a newer regard, or torch 2.15"
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(text)}$"):
        torch_names.report_missing()


@pytest.mark.parametrize("version", ["2.9.0", "2.15.3+cu132", "2.150.0", "unknown"])
def test_nothing_is_said_of_a_tested_release_or_where_nothing_is_missing(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    if not version.startswith("2.150"):
        monkeypatch.setitem(torch_names.PRIVATE, "pictures", ("_no_such_name",))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch_names.report_missing()


def test_the_engines_report_when_they_are_loaded() -> None:
    program = "import torch; torch.__version__ = '9.9'; del torch._fused_sdp_choice; import regard; regard.attend"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "accelerating (torch._fused_sdp_choice)" in ran.stderr
    assert ran.stderr.count("is newer than") == 1
