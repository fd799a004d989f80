"""The benchmark on another device: moved there, waited for, its memory measured there. The GPU is make-believe."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from regard.bench.cases import CASES, Shape, Workload
from regard.bench.contenders import PEERS, contenders, flex_refuses, flex_score_mod
from regard.bench.device import Cuda, Device, device
from regard.bench.machine import machine
from regard.bench.measure import Settings, in_turns, measure
from regard.cli import bench, main

SHORT = {case.family: case.sized(n=97) for case in reversed(CASES.values())}


class Pretended(Device):
    """Works like a GPU on the processor's own memory."""

    kind = "cuda"

    def __init__(self) -> None:
        self.waits = 0

    @property
    def name(self) -> str | None:
        return "Make-believe 9000"

    def synchronize(self) -> None:
        self.waits += 1

    def extra_bytes(self, case: Workload, contender: object, engines: Sequence[str] = ("auto",)) -> int | None:
        return 123 << 20


def test_work_is_waited_for_and_its_memory_measured_where_it_is_done() -> None:
    place = Pretended()
    result = measure(SHORT["causal"], Settings(rounds=3, peers=("sdpa",), device=place))
    assert {score.extra_bytes for score in result.scores} == {123 << 20}
    assert place.waits == 2 * sum(score.samples for score in result.scores)
    assert result.peak_flops is None
    assert result.share(result.ours) is None


def test_a_sample_begins_and_ends_with_nothing_left_to_do() -> None:
    said: list[str] = []
    in_turns({"one": lambda: said.append("work")}, 1.0, 1, synchronize=lambda: said.append("wait"))
    assert said == ["wait", "work", "wait"]


def test_cases_move() -> None:
    case = SHORT["t5-train"].sized(device="meta")
    assert {tensor.device.type for tensor in case.inputs()} == {"meta"}
    assert all(tensor.requires_grad and tensor.is_leaf for tensor in case.inputs())
    gradient = case.output_gradient()
    assert gradient is not None
    assert gradient.device.type == case.plane().device.type == "meta"
    assert case.sized(device=None) == case


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for version, why in ((None, "was built without CUDA"), ("13.0", "finds no GPU")):
        monkeypatch.setattr(torch.version, "cuda", version)
        monkeypatch.setattr(torch.version, "hip", None)
        text = f"--device cuda needs a GPU that torch can use, and torch {torch.__version__} {why}"
        with pytest.raises(ValueError, match="needs a GPU") as raised:
            device("cuda")
        assert str(raised.value) == text
        assert main(["bench", "tiny", "--device", "cuda"]) != 0
        assert text in capsys.readouterr().err
    with pytest.raises(ValueError, match="--device must be cpu or cuda, got 'tpu'"):
        device("tpu")
    assert device("cpu").kind == "cpu"


def test_a_gpu_is_found_and_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert isinstance(device("cuda"), Cuda)
    here = Pretended()
    here.kind = "cpu"  # so that the tensors stay
    monkeypatch.setattr(bench, "device", lambda kind: here)
    assert main(["bench", "tiny", "--device", "cuda", "--rounds", "1", "--quick"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("Make-believe 9000; ")
    assert str(machine()) in str(machine("Make-believe 9000"))


def test_the_cache_is_for_the_processor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench, "device", lambda kind: Pretended())
    assert main(["bench", "cache", "--device", "cuda"]) != 0
    assert "cache is measured on the processor; leave --device out" in capsys.readouterr().err


def test_memory_on_a_gpu_is_what_torch_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peak beyond inputs, less what is returned."""
    case = SHORT["train"]
    held, calls = 1000, list[str]()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("wait"))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: held)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: calls.append("reset"))
    gradient = case.output_gradient()
    assert gradient is not None
    returned = sum(tensor.nbytes for tensor in (*case.inputs(), gradient))  # gradients are as large as inputs
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: held + returned + 777)
    for contender in contenders(case, peers=("sdpa", "eager")):
        assert Cuda().extra_bytes(case, contender, ("auto",)) == 777
        assert calls[-2:] == ["reset", "wait"]


def test_what_the_maker_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    class Properties:
        L2_cache_size = 50 << 20

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Properties())
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Make-believe 9000")
    assert (Cuda().name, Cuda().cache_bytes()) == ("Make-believe 9000", 50 << 20)


def test_peers_train_on_a_gpu() -> None:
    for family in ("train", "train-causal", "t5-train"):
        assert flex_refuses(SHORT[family]) == "it cannot train on a CPU"
        assert flex_refuses(SHORT[family].sized(device="cuda")) is None
    keras = [
        peer for peer in contenders(SHORT["additive"].sized(device="cuda"), peers=tuple(PEERS)) if peer.name == "Keras"
    ]
    assert keras[0].refuses(SHORT["additive"].sized(device="cuda")) == "Keras is timed on the processor only"


def test_flex_reads_a_learned_table() -> None:
    case = replace(SHORT["t5-train"], shape=Shape(40, heads=2))
    inputs = case.inputs()
    bias = case.spec(inputs)["bias"]
    mod = flex_score_mod(case, inputs)(inputs)
    assert mod is not None
    i, j = torch.arange(40).view(-1, 1), torch.arange(40)
    right = bias.values(case.plane().all).flatten(0, 1)
    for head in range(2):
        assert torch.equal(mod(torch.zeros(40, 40), 0, head, i, j), right[head])
