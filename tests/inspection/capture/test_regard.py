"""Capture of regard's own layers and of models that call attend."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import regard
from regard import attend, biases, masks, normalizers, scores
from regard.inspection.capture import capture

LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped, causal, rotary": {"kv_heads": 2, "mask": "causal", "position": lambda: regard.nn.Rotary(4)},
    "additive": {"score": lambda: regard.nn.Additive(4, 6)},
    "window, sink": {"mask": masks.Window(2, 1), "normalizer": normalizers.Softmax(0.5)},
    "alibi, temperature": {"bias": biases.ALiBi(4), "temperature": 0.4},
    "sparse": {"normalizer": normalizers.Sparsemax()},
}


@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
def test_layer(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    made = {name: part() if callable(part) and not isinstance(part, type) else part for name, part in options.items()}
    model = nn.Sequential(regard.nn.MultiHeadAttention(16, 4, **made))
    x = torch.randn(2, 9, 16)
    want = model(x)
    c = capture(model, x)
    assert torch.equal(c.output, want)
    assert c.layers == ("0",)
    layer: Any = model[0]
    values = layer.v_proj(x).unflatten(-1, (layer.kv_heads, -1)).transpose(-3, -2)
    values = values.repeat_interleave(layer.heads // layer.kv_heads, -3)
    out = layer.out_proj((c[0].dense() @ values).transpose(-3, -2).flatten(-2))
    assert_close(out, want, atol=1e-5, rtol=1e-5)


def test_parameters_written_over_change_nothing() -> None:
    layer, x = regard.nn.MultiHeadAttention(16, 4, bias=regard.nn.T5(4)), torch.randn(2, 9, 16)
    c, again = capture(layer, x), capture(layer, x)
    want = again[0].dense()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    assert_close(c[0].dense(), want)


def test_generation_with_a_cache_is_one_matrix() -> None:
    torch.manual_seed(0)
    model = regard.nn.LanguageModel(23, layers=2, d_model=16, heads=4, position=regard.nn.Rotary(4)).eval()
    tokens = torch.randint(0, 23, (1, 5))
    with torch.no_grad():
        with capture(model) as c:
            new = model.generate(tokens, 4)
        once = capture(model, torch.cat([tokens, new[:, :-1]], 1))
    assert len(c) == 2
    for steps, found in zip(c, once, strict=True):
        assert_close(steps.dense(), found.dense(), atol=1e-6, rtol=1e-5)


class Direct(nn.Module):
    """Calls attend under a name of its own file."""

    def forward(self, x: Tensor) -> Tensor:
        return attend(x, x, x, score=scores.Cosine(3.0), mask="causal")


def test_attend_by_name() -> None:
    x = torch.randn(2, 3, 7, 4)
    c = capture(Direct(), x)
    assert_close(c.output, c[0].dense() @ x, atol=1e-6, rtol=1e-5)
    assert attend is regard.attend
    assert repr(c).splitlines()[2].split()[:4] == ["0", "Direct", "3", "7"]


FIRST_USE = """
import torch, regard
class Attends(torch.nn.Module):
    def forward(self, x):
        return regard.attend(x, x, x)
print(regard.capture(Attends(), torch.randn(1, 2, 5, 4)).layers)
"""


def test_attend_that_is_first_used_inside_a_capture() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_USE], capture_output=True, text=True, check=False)
    assert done.stdout == "('Attends',)\n", done.stderr
