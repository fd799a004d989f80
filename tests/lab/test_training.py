"""A training gives the same numbers whether it runs through, is killed and resumed, or comes from the cache."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from regard.lab import training
from regard.lab.training import Task, Trained, named, train
from regard.progress import PlainCallback, reporting_to_user


@dataclass(frozen=True)
class Lines(Task):
    """A line through random points, with dropout: random numbers of both generators decide the loss."""

    width: int = 3

    @property
    def name(self) -> str:
        return f"line {self.seed}"

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(self.width, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.Linear(4, 1))

    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        points = torch.randn(16, self.width, generator=generator)
        error: Tensor = ((model(points)[:, 0] - points.sum(1)) ** 2).mean()
        return error

    def look(self, model: nn.Module) -> dict[str, float]:
        assert not model.training
        return {"largest": float(next(model.parameters()).abs().max())}


TASK = Lines(seed=1, steps=40, rate=0.05, rise=0.05, looks=8)


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


def same(first: Trained, second: Trained) -> bool:
    """To the last bit."""
    ours, theirs = named(first.model), named(second.model)
    return first.curve == second.curve and all(torch.equal(ours[name], theirs[name]) for name in ours)


def elsewhere(task: Task, tmp_path: Path) -> Trained:
    """The task trained through, in a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path / "elsewhere"))
        return train(task)


def test_the_loss_falls_and_the_curve_holds_what_was_measured() -> None:
    trained = train(TASK)
    assert trained.column("step") == [5, 10, 15, 20, 25, 30, 35, 40]
    assert trained.column("loss")[-1] < trained.column("loss")[0]
    assert trained.column("largest")[-1] == float(named(trained.model)["0.weight"].detach().abs().max())
    assert not trained.model.training


def test_one_seed_one_set_of_numbers(tmp_path: Path) -> None:
    assert same(train(TASK), elsewhere(TASK, tmp_path))
    assert train(replace(TASK, seed=2)).curve != train(TASK).curve


def test_the_caller_keeps_randomness_and_threads_and_neither_matters(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.manual_seed(7)
    expected = torch.randn(3)
    torch.manual_seed(7)
    torch.set_num_threads(2)
    try:
        first = train(TASK)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.randn(3), expected)
    assert same(first, elsewhere(TASK, tmp_path))


def test_a_second_run_comes_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    first = train(TASK)
    monkeypatch.setattr(Lines, "loss", None)
    assert same(train(TASK), first)
    with pytest.raises(TypeError):
        train(replace(TASK, rate=0.06))


def test_other_settings_versions_and_code_have_other_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = training.training_folder(TASK)
    assert training.training_folder(replace(TASK, steps=41)) != folder
    assert training.training_folder(Lines(seed=1, steps=40, rate=0.05, rise=0.05, looks=8)) == folder
    monkeypatch.setattr(training, "versions", lambda: {"regard": "other"})
    assert training.training_folder(TASK) != folder
    monkeypatch.undo()
    monkeypatch.setattr(training, "code_hash", lambda file: "other")
    assert training.training_folder(TASK).name != folder.name


def test_the_code_of_a_training_is_its_own_file_or_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in ("lab/one.py", "lab/other.py", "lab/many/task.py", "lab/many/experiment.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")
    monkeypatch.setattr(training, "PACKAGE", tmp_path)

    def changed(task: str, file: str) -> bool:
        before = training.code_hash.__wrapped__(str(tmp_path / task))
        (tmp_path / file).write_text((tmp_path / file).read_text() + "#")
        return training.code_hash.__wrapped__(str(tmp_path / task)) != before

    assert changed("lab/one.py", "lab/one.py")
    assert not changed("lab/one.py", "lab/other.py")
    assert changed("lab/many/task.py", "lab/many/experiment.py")
    assert not changed("lab/many/task.py", "lab/one.py")


def test_the_record_says_what_was_run_and_where() -> None:
    train(TASK)
    (folder,) = (training.training_folder(TASK).parent).iterdir()
    assert sorted(file.name for file in folder.iterdir()) == ["model.safetensors", "record.json"]
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    assert record["settings"] | {"seed": 1, "steps": 40, "rate": 0.05, "width": 3} == record["settings"]
    assert record["versions"]["torch"] == torch.__version__
    assert record["machine"]["cores"] == os.cpu_count()
    assert len(record["curve"]) == 8


KILLED = """
import os, signal
from regard.lab import training
from regard.lab.training import train
from regard.lab.translation.task import Translating
from regard.progress import reporting_to_user

training.EVERY = 0.0
def progress(what, done, total):
    if done == 7:
        os.kill(os.getpid(), signal.SIGKILL)
sizes = {"steps": 12, "looks": 4, "width": 8, "batch": 4, "sentences": 30}
with reporting_to_user(progress, "steps"):
    train(Translating(seed=3, rate=1e-2, rise=0.1, score="additive", **sizes))
"""


def test_a_killed_run_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    from regard.lab.translation.task import Translating

    task = Translating(seed=3, steps=12, rate=1e-2, rise=0.1, looks=4, score="additive", width=8, batch=4, sentences=30)
    killed = subprocess.run([sys.executable, "-c", KILLED], env=os.environ, capture_output=True, text=True, timeout=600)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [file.name for file in training.training_folder(task).iterdir()] == ["checkpoint.safetensors"]
    steps: list[int] = []
    resumed = reported(task, lambda what, done, total: steps.append(done))
    assert steps == [7, 8, 9, 10, 11]  # the killed run had saved seven steps, and was killed before it saved the eighth
    assert same(resumed, elsewhere(task, tmp_path))


def reported(task: Task, callback: PlainCallback) -> Trained:
    with reporting_to_user(callback, "steps"):
        return train(task)


@pytest.fixture
def _default_handler() -> Iterator[None]:
    """A shell that starts tests in the background has them ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_default_handler")
def test_ctrl_c_leaves_a_checkpoint_that_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    def press(what: str, done: int, total: int) -> None:
        if done == 20:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=r"stopped after step 2[12]; the next run goes on from there"):
        reported(TASK, press)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    steps: list[int] = []
    resumed = reported(TASK, lambda what, done, total: steps.append(done))
    assert steps[0] in (21, 22)
    assert same(resumed, elsewhere(TASK, tmp_path))


def test_progress_reports_name_loss_and_step() -> None:
    reports: list[tuple[str, int, int]] = []
    reported(TASK, lambda *step: reports.append(step))
    assert len(reports) == 40
    assert reports[0][1:] == (0, 40)
    assert reports[0][0].startswith("training line 1, loss ")


def test_damaged_files_are_named() -> None:
    train(TASK)
    file = training.training_folder(TASK) / training.WEIGHTS
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"model.safetensors is damaged .* delete it, and the training begins anew"):
        train(TASK)


def test_weights_of_another_model_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    train(TASK)
    monkeypatch.setattr(Lines, "model", lambda self: nn.Linear(3, 1))
    with pytest.raises(ValueError, match="are not those of this model; delete the file"):
        train(TASK)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "file"))
    with pytest.raises(OSError, match=r"cannot write to .*; set REGARD_CACHE to a folder that you may write to"):
        train(TASK)


def test_parts_that_a_kill_left_are_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = training.training_folder(TASK)
    folder.mkdir(parents=True)
    old, new = folder / ".regard-old.part", folder / ".regard-new.part"
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    train(TASK)
    assert not old.exists()
    assert new.exists()


def test_the_rate_rises_and_falls() -> None:
    rates = [TASK.rate_at(step) for step in range(TASK.steps)]
    assert rates[0] == pytest.approx(0.025)
    assert max(rates) == pytest.approx(0.05, rel=0.02)
    assert rates[-1] < 0.001
    assert rates[2:] == sorted(rates[2:], reverse=True)


def test_a_task_has_steps() -> None:
    with pytest.raises(ValueError, match="steps must be"):
        replace(TASK, steps=0)


def test_two_that_want_the_same_train_once() -> None:
    """The second waits for the first and takes what it left. flock holds between open files, so threads show it."""
    steps: list[int] = []
    begun = threading.Event()

    def counted(what: str, done: int, total: int) -> None:
        steps.append(done)
        begun.set()

    results: list[Trained] = []
    first = threading.Thread(target=lambda: results.append(reported(TASK, counted)))
    first.start()
    assert begun.wait(20)
    results.append(reported(TASK, counted))
    first.join()
    assert steps == list(range(TASK.steps))
    assert same(*results)
