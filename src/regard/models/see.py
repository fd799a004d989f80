"""see: a text read by a model, as a capture that is shown at once."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.inspection.capture.run import capture
from regard.models.load import load

if TYPE_CHECKING:
    from regard.inspection.capture.result import Capture

DEFAULT = "minilm"


def see(
    text: str | list[str], *more: str | list[str], model: Any = DEFAULT, show: bool | None = None, **options: Any
) -> "Capture":
    """What a model attends to in a text: a capture, which is printed as a picture, or drawn by a notebook.

    `model` is a name that `regard.models.load` takes (a model that regard knows, a folder or a hub id), or a model with
    a tokenizer, as `regard.capture` takes it, with its options. A second text is the other of a pair, or what a decoder
    reads. `show`: whether to print the picture; by default unless a notebook draws what a cell gives.
    """
    import torch

    if isinstance(model, str | Path):
        model = load(model)
    with torch.no_grad():
        found: Capture = capture(model, text, *more, **options)
    if show or (show is None and not _in_notebook()):
        found.show()
    return found


def _in_notebook() -> bool:
    """Whether what the last line of a cell gives is drawn."""
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    return running is not None and hasattr(running, "kernel")
