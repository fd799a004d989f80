"""Weights written one by one are read back by safetensors, bit for bit."""

from pathlib import Path

import numpy
import pytest
from safetensors.numpy import load_file

from regard.models import gguf
from regard.progress import reporting_to_user


def test_safetensors_reads_what_was_written(tmp_path: Path) -> None:
    random = numpy.random.default_rng(1)
    shapes = {"a": (3, 5), "b.weight": (7,), "empty": (0, 4), "ü": (2, 3, 4)}
    tensors = {name: random.standard_normal(shape).astype(numpy.float32) for name, shape in shapes.items()}
    tensors["a"] = numpy.asfortranarray(tensors["a"])
    tensors["b.weight"][:3] = [numpy.nan, numpy.inf, -0.0]
    entries = [gguf.Weight(name, shape) for name, shape in shapes.items()]
    reports: list[tuple[str, int, int]] = []
    with reporting_to_user(lambda *step: reports.append(step), "bytes"):
        gguf.write_safetensors(tmp_path / "w", entries, tensors.values())
    found = load_file(tmp_path / "w")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].shape == tensor.shape
        assert found[name].tobytes() == tensor.tobytes()
    total = 4 * (15 + 7 + 24)
    assert [done for _, done, _ in reports] == [0, 60, 88, 88, total]
    assert {(what, of) for what, _, of in reports} == {("converting", total)}


def test_a_tensor_of_another_shape_is_refused(tmp_path: Path) -> None:
    tensor = numpy.zeros((2, 3), numpy.float32)
    with pytest.raises(ValueError, match=r"x should have the shape \(3, 2\), got \(2, 3\)"):
        gguf.write_safetensors(tmp_path / "w", [gguf.Weight("x", (3, 2))], [tensor])
