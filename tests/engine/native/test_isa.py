"""Every instruction set that the processor has agrees with the reference; a name that cannot be served is refused."""

import os
import subprocess
import sys

import pytest
import torch

from regard import attend, biases, scores

PROGRAM = """
import torch
from regard import attend
from regard.engine.native.library import isa
from regard.testing import mechanisms
print(isa())
for case in mechanisms():
    if not case.product:
        continue
    found = []
    for engine in ("reference", "native"):
        inputs, spec, leaves = case.build()
        out = attend(*inputs, **spec, engine=engine)
        found.append([out, *torch.autograd.grad(out.square().sum(), list(leaves.values()), materialize_grads=True)])
    for right, ours in zip(*found, strict=True):
        assert bool(((ours - right).abs() <= 1e-10 * (1 + right.abs().max() if right.numel() else 1)).all()), case
"""


def forced(isa: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "REGARD_ISA": isa, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("isa", ["portable", "avx2", "avx512"])
def test_a_forced_instruction_set_runs_and_agrees(isa: str) -> None:
    found = forced(isa)
    if "the processor must have it" in found.stderr:
        pytest.skip(f"this processor has no {isa}")
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == [isa]


def test_an_unknown_one_is_refused() -> None:
    found = forced("avx-512")
    assert found.returncode != 0
    assert "REGARD_ISA must be portable, avx2 or avx512" in found.stderr


def test_a_factor_of_zero_leaves_the_gradient_of_a_table() -> None:
    query, key, value = torch.randn(3, 1, 2, 20, 8, dtype=torch.float64)
    grads: list[torch.Tensor] = []
    for engine in ("reference", "native"):
        table = torch.linspace(-1, 1, 16, dtype=torch.float64).view(8, 2).requires_grad_()
        out = attend(query, key, value, score=scores.ScaledDot(0.0), bias=biases.T5(table, True, 10), engine=engine)
        grads += torch.autograd.grad(out.square().sum(), table)
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-12, atol=1e-12)
