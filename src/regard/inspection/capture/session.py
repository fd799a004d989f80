"""Session: a capture while it is open: it listens to a model, and in the end tells what was heard."""

import os
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch import nn
from torch.overrides import _get_current_function_mode_stack

from regard.engine.sdpa_override.override import SdpaOverride
from regard.inspection.capture import file
from regard.inspection.capture.choice import Choice
from regard.inspection.capture.kept import Kept, Refused
from regard.inspection.capture.labels import Labels
from regard.inspection.capture.patches import grid_of, patches_of
from regard.inspection.capture.recorder import Recorder
from regard.inspection.capture.spill import Spill
from regard.inspection.capture.table import listed
from regard.inspection.files import form_of
from regard.inspection.hooks.missed import Missed, Watch
from regard.inspection.hooks.taps import listening

NOTHING = (
    "{} made no call of attention that can be heard: scaled_dot_product_attention, nn.MultiheadAttention, the "
    "attention interface of transformers, or regard's attend. If it multiplies queries and keys itself, build them "
    "with regard.matrix(query, key); if it was compiled, capture it before"
)
PARTLY = "{} ran attention that is not in this capture, so that c[0] may not be its first layer: {}. c.missed lists it"


class Session:
    """Begins once and ends once."""

    def __init__(self, model: nn.Module, choice: Choice, spill: str | os.PathLike[str] | int | None) -> None:
        self._model, self._choice = type(model).__name__, choice
        self._path = Path(os.path.realpath(spill)) if isinstance(spill, str | os.PathLike) else None
        if self._path is not None:
            form_of(self._path, ("safetensors",))
            if not self._path.parent.is_dir():
                raise FileNotFoundError(f"spill: there is no folder {self._path.parent}; make it first")
        budget = spill if isinstance(spill, int) else None
        folder = None if self._path is None else self._path.parent
        self._recorder, self._listened = Recorder(model, choice, Spill(budget, folder)), ExitStack()
        self._watch = Watch(model)
        self._done: tuple[Missed, ...] = ()
        self._begin: Callable[[], AbstractContextManager[None]] | None = partial(
            listening, model, self._recorder.hear, self._watch
        )
        self._patches = patches_of(model)
        self.image: tuple[int, int] | None = None  # sides of the images that the model is given, if it is known

    def begin(self) -> None:
        """Listen from now on."""
        if self._begin is None:
            raise RuntimeError("this capture is open; begin another with capture(model)")
        if any(isinstance(mode, SdpaOverride) for mode in _get_current_function_mode_stack()):
            raise RuntimeError(
                "regard.accelerating() leaves attention to torch while it is captured, which would change the output; "
                "capture outside the block"
            )
        self._listened.enter_context(self._begin())
        self._begin = None

    @property
    def layers(self) -> list[Kept | Refused]:
        """What was heard so far."""
        found = self._recorder.kept()
        names = [layer.name for layer in found]
        return [
            replace(layer, grid=grid_of(layer.name, names, layer.keys, self._patches, self.image))
            if isinstance(layer, Kept)
            else layer
            for layer in found
        ]

    @property
    def missed(self) -> tuple[Missed, ...]:
        """Attention that ran unheard so far, in the layers that were asked for by name, or in all."""
        return self._done or tuple(each for each in self._watch.missed if self._choice.may_want(each.layer))

    def end(self, labels: Labels, *, failed: bool) -> list[Kept | Refused]:
        """Stop listening; all layers, checked, and in their file if one was named."""
        self._listened.close()
        self._recorder.done()
        self._done, self._watch = self.missed, Watch(nn.Identity())
        if failed:
            return self.layers
        if self._recorder.paths:
            self._choice.check(list(self._recorder.paths))
        layers = self.layers
        if not layers:
            unheard = f". Not captured: {listed(self.missed)}" if self.missed else ""
            raise ValueError(NOTHING.format(self._model) + unheard)
        refused = [layer for layer in layers if isinstance(layer, Refused)]
        if len(refused) == len(layers):
            raise ValueError(f"no layer of {self._model} can be shown; {refused[0].name}: {refused[0].reason}")
        labels.check([layer for layer in layers if isinstance(layer, Kept)])
        if self.missed:
            warnings.warn(PARTLY.format(self._model, listed(self.missed)), stacklevel=_outside())
        if self._path is None:
            return layers
        file.write(self._path, self._model, layers, labels, self.missed)
        return file.layers_in(self._path)


def _outside() -> int:
    """The stacklevel of the first caller that is not part of capture."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("regard.inspection.capture"):
        frame, level = frame.f_back, level + 1
    return level
