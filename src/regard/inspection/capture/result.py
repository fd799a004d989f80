"""Capture: the attention of a model, layer by layer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self

from torch import nn
from torch.overrides import _get_current_function_mode_stack

from regard.engine.accelerating.block import _Accelerating
from regard.inspection.capture.layer import Layer
from regard.inspection.capture.recorder import Recorder, Refused
from regard.inspection.listening.taps import listening
from regard.inspection.matrix import AttentionMatrix

NOTHING = (
    "{} made no call of attention that can be heard: scaled_dot_product_attention, nn.MultiheadAttention, the "
    "attention interface of transformers, or regard's attend. If it multiplies queries and keys itself, build them "
    "with regard.matrix(query, key); if it was compiled, capture it before"
)


class Capture:
    """What the layers of a model attended to. `c[layer]` is an `AttentionMatrix` (batch, head, query, key), `c[layer,
    head]` that of a head, (batch, query, key); a layer is a number or a name of `c.layers`."""

    def __init__(self, model: nn.Module, tokens: Sequence[str] | None = None) -> None:
        self.output: Any = None  # what the model returned, if it was called by `capture`
        self._model, self._tokens = type(model).__name__, tokens
        self._recorder, self._listened = Recorder(model), ExitStack()
        self._begin: Callable[[], AbstractContextManager[None]] | None = partial(listening, model, self._recorder.hear)
        self._matrices: dict[str, AttentionMatrix] = {}

    def __enter__(self) -> Self:
        if self._begin is None:
            raise RuntimeError("this capture is done; begin another with capture(model)")
        if any(isinstance(mode, _Accelerating) for mode in _get_current_function_mode_stack()):
            raise RuntimeError(
                "regard.accelerating() leaves attention to torch while it is captured, which would change the output; "
                "capture outside the block"
            )
        self._listened.enter_context(self._begin())
        self._begin = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listened.close()
        self._recorder.done()
        if kind is not None:
            return
        if not self._recorder.layers:
            raise ValueError(NOTHING.format(self._model))
        refused = [layer for layer in self._recorder.layers if isinstance(layer, Refused)]
        if len(refused) == len(self._recorder.layers):
            raise ValueError(f"no layer of {self._model} can be shown; {refused[0].name}: {refused[0].reason}")
        self._check_tokens()

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers, in the order in which they ran: their paths in the model."""
        return tuple(layer.name for layer in self._recorder.layers)

    @property
    def refused(self) -> dict[str, str]:
        """Layers whose weights cannot be computed again, and why."""
        return {layer.name: layer.reason for layer in self._recorder.layers if isinstance(layer, Refused)}

    def __len__(self) -> int:
        return len(self._recorder.layers)

    def __getitem__(self, asked: int | str | tuple[int | str, int]) -> AttentionMatrix:
        if isinstance(asked, tuple):
            if len(asked) != 2:
                raise IndexError(f"a capture is indexed by [layer] or [layer, head], got {len(asked)} indices")
            found = self[asked[0]]
            part: AttentionMatrix = found[(*(slice(None),) * (found.ndim - 3), asked[1])]
            return part
        layer = self._layer(asked)
        if isinstance(layer, Refused):
            raise ValueError(f"{layer.name} cannot be shown: {layer.reason}")
        if layer.name not in self._matrices:
            matrix = layer.matrix
            matrix.query_tokens, matrix.key_tokens = self._labels(layer.queries), self._labels(layer.keys)
            self._matrices[layer.name] = matrix
        return self._matrices[layer.name]

    def __iter__(self) -> Iterator[AttentionMatrix]:
        return (self[number] for number in range(len(self)))

    def __repr__(self) -> str:
        if not self._recorder.layers:
            return f"<Capture of {self._model}: nothing yet>"
        count = len(self)
        lines = [("", "layer", "heads", "queries × keys", "mechanism", "row sums off by")]
        for number, layer in enumerate(self._recorder.layers):
            if isinstance(layer, Refused):
                lines.append((str(number), layer.name, "", "", f"refused: {layer.reason}", ""))
            else:
                size = f"{layer.queries:,} × {layer.keys:,}"
                lines.append((str(number), layer.name, str(layer.heads), size, layer.mechanism, f"{layer.off:.1e}"))
        widths = [max(len(line[column]) for line in lines if line[4][:7] != "refused") for column in range(6)]
        rows = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        title = f"<Capture of {self._model}: {count} {'layer' if count == 1 else 'layers'}>"
        return "\n".join([title, *(row.rstrip() for row in rows)])

    def _layer(self, asked: int | str) -> Layer | Refused:
        layers = self._recorder.layers
        if isinstance(asked, str):
            for layer in layers:
                if layer.name == asked:
                    return layer
            raise KeyError(f"no layer {asked!r}; there are {', '.join(self.layers)}")
        if isinstance(asked, bool) or not isinstance(asked, int):
            raise TypeError(f"a layer is a number or a name, got {type(asked).__name__}")
        if not -len(layers) <= asked < len(layers):
            raise IndexError(f"layer {asked} of {len(layers)}")
        return layers[asked]

    def _labels(self, count: int) -> tuple[str, ...] | None:
        """The tokens, if there are as many."""
        return tuple(self._tokens) if self._tokens is not None and len(self._tokens) == count else None

    def _check_tokens(self) -> None:
        if self._tokens is None:
            return
        if isinstance(self._tokens, str):
            raise TypeError("tokens must be a sequence of strings, got one string; split it first")
        sizes = {n for layer in self._recorder.layers if isinstance(layer, Layer) for n in (layer.queries, layer.keys)}
        if len(self._tokens) not in sizes:
            counts = ", ".join(f"{size:,}" for size in sorted(sizes))
            raise ValueError(f"tokens has {len(self._tokens):,} entries, the layers have {counts} queries or keys")
