"""A captured head saved as a picture stays a short walk: few functions in few files are entered."""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import regard
from tests.engine.test_call_depth import entered

FUNCTIONS, FILES = 205, 50
FOR_TRANSFORMERS = (2, 1)  # more where transformers is loaded: its hooks are set and removed


class Attends(nn.Module):
    """Attention of a tensor to itself."""

    def forward(self, x: Tensor) -> Tensor:
        """(batch, head, length, width)."""
        return scaled_dot_product_attention(x, x, x)


def test_a_captured_head_saved_to_png_enters_few_functions_in_few_files(tmp_path: Path) -> None:
    model, x = Attends(), torch.randn(1, 2, 7, 8)

    def walk() -> None:
        regard.capture(model, x)[0, 0].save(tmp_path / "head.png")

    walk()  # imports and caches
    functions = entered(walk)
    files = {file for file, _ in functions}
    more = FOR_TRANSFORMERS if "transformers" in sys.modules else (0, 0)
    assert len(functions) <= FUNCTIONS + more[0], sorted(functions)
    assert len(files) <= FILES + more[1], sorted(files)
