"""Capture: the attention of a model, layer by layer."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from regard.inspection.capture import file
from regard.inspection.capture.layer import (
    CHANNELS,
    CROSS,
    CapturedLayer,
    PatchGrid,
    RefusedLayer,
    TokenLabels,
    Tokens,
)
from regard.inspection.hooks.missed import Missed, listed
from regard.inspection.matrix import AttentionMatrix
from regard.inspection.matrix.indexing import Origin
from regard.inspection.records import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.inspection.capture.run import CaptureSession
    from regard.inspection.explain import Explanation


class Capture:
    """What the layers of a model attended to. `c[layer]` is an `AttentionMatrix` (batch, head, query, key), `c[layer,
    head]` that of a head, (batch, query, key); a layer is a number or a name of `c.layers`, a head the number that it
    has in the model."""

    def __init__(
        self,
        model: str,
        layers: Sequence[CapturedLayer | RefusedLayer],
        labels: TokenLabels,
        session: "CaptureSession | None" = None,
        missed: Sequence[Missed] = (),
        name: str = "",
    ) -> None:
        self.output: Any = None  # what the model returned, if it was called by `capture`
        self.name = name or model  # of the model, as views write it
        self._model, self._captured, self._labels, self._session = model, list(layers), labels, session
        self._whole: Capture | None = None  # the capture that this is a part of
        self._missed, self._matrices = tuple(missed), dict[str, AttentionMatrix]()

    def __enter__(self) -> Self:
        if self._session is None:
            raise RuntimeError("this capture is done; begin another with capture(model)")
        self._session.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        session, self._session = self._session, None
        self._matrices.clear()
        try:
            self._captured = session.end(self._labels, failed=kind is not None)
        finally:
            self._missed = session.missed

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers, in the order in which they ran: their paths in the model."""
        return tuple(layer.name for layer in self._layers)

    @property
    def refused(self) -> dict[str, str]:
        """Layers whose weights cannot be computed again, and why."""
        return {layer.name: layer.reason for layer in self._layers if isinstance(layer, RefusedLayer)}

    @property
    def missed(self) -> tuple[Missed, ...]:
        """Attention that the model ran and that is not in this capture: the name of the module, the reason, and how
        often it ran."""
        return self._missed if self._session is None else self._session.missed

    @property
    def model(self) -> str:
        """The name of the model's class."""
        return self._model

    @property
    def tokens(self) -> Any:
        """The tokens of the queries and keys: a list, or one for each batch row, of one sequence or by "encoder" and
        "decoder". May be set, since what a model generates is known only when it is done."""
        tokens = self._labels.rows.items()
        sides: dict[str, Any] = {
            side: list(rows[0]) if len(rows) == 1 else list(map(list, rows)) for side, rows in tokens
        }
        return sides.get("", sides or None)

    @tokens.setter
    def tokens(self, tokens: Tokens | None) -> None:
        labels = TokenLabels.of(tokens)
        labels.check(self._layers)
        self._labels = labels
        self._matrices.clear()

    @property
    def encoder(self) -> "Capture":
        """The layers in which an encoder looks at itself."""
        return self._part("encoder", "self-attention of an encoder")

    @property
    def decoder(self) -> "Capture":
        """The layers in which a decoder looks at itself: those of a language model too."""
        return self._part("decoder", "self-attention of a decoder")

    @property
    def cross(self) -> "Capture":
        """The layers that look from one sequence at another."""
        return self._part("cross", "attention from one sequence to another")

    @property
    def grids(self) -> dict[str, PatchGrid]:
        """Layers whose keys are patches of an image: rows, columns, and the tokens that come first."""
        return {
            each.name: each.grid for each in self._layers if isinstance(each, CapturedLayer) and each.grid is not None
        }

    @property
    def grid(self) -> PatchGrid | None:
        """The grid of patches, if all layers that have one have the same."""
        grids = set(self.grids.values())
        return grids.pop() if len(grids) == 1 else None

    @property
    def channels(self) -> tuple[str, ...]:
        """The layers whose queries and keys are channels instead of tokens."""
        return tuple(each.name for each in self._layers if isinstance(each, CapturedLayer) and each.kind == CHANNELS)

    def numbers(self, layer: int | str) -> tuple[int, ...]:
        """The numbers that the heads of a layer have in the model; all, unless `heads` were chosen."""
        return self._layer(layer).heads

    def heads(self, **options: Any) -> Table:
        """A table of all heads: what they look at, in numbers. Options as in `regard.inspection.heads.head_table`."""
        from regard.inspection.heads import head_table

        table: Table = head_table(self, **options)
        return table

    def explain(self, layer: int | str, head: int, *, row: int = 0, batch: int = 0, digits: int = 4) -> "Explanation":
        """How a head comes to its weights, in numbers: from queries and keys to the weights, one query worked out."""
        from regard.inspection.explain import explain

        captured = self._layer(layer)
        if captured.weights is not None:
            raise ValueError(f"{captured.name} has weights and no queries and keys: there is nothing to work out")
        if head not in captured.heads:
            raise IndexError(f"there is no head {head} of {captured.name}: the heads are {list(captured.heads)}")
        place = captured.heads.index(head) if captured.shown is None else captured.shown[captured.heads.index(head)]
        matrix = self[layer]
        options: dict[str, Any] = {"row": row, "batch": batch, "head": place, "digits": digits, "weights_only": True}
        labels = [_row_tokens(tokens, batch) for tokens in (matrix.query_tokens, matrix.key_tokens)]
        made = explain(
            captured.query, captured.key, query_tokens=labels[0], key_tokens=labels[1], **captured.spec, **options
        )
        number = self.layers.index(captured.name) if captured.number is None else captured.number
        return replace(made, title=f"{self.name}, layer {number}, head {head}: attention step by step")

    def show(self, **options: Any) -> None:
        """Print an overview of layers and heads that fits the terminal; options as in `regard.plot.capture`."""
        from regard.plot.capture import print_capture

        print_capture(self, **options)

    def save(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write all but the output to a safetensors file, which `regard.load` opens; or with another suffix, such as
        png, svg, pdf or html, a picture. Returns the path."""
        if str(path).lower().endswith(".safetensors"):
            if options:
                raise TypeError(f"a safetensors file takes no options, got {', '.join(options)}")
            file.write(path, self._model, self._layers, self._labels, self.missed, self.name)
            return Path(path)
        from regard.plot.capture import save_capture

        save_capture(self, path, **options)
        return Path(path)

    def figure(self, **options: Any) -> "Figure":
        """The picture that `save` writes as a matplotlib figure of its own, for a logger; options as in `save`."""
        from regard.plot.capture import CapturePicture, figure_of
        from regard.plot.figure import finished

        return finished(figure_of(self, CapturePicture(**options)))

    def _repr_html_(self) -> str:
        from regard.plot.page import capture_notebook

        return capture_notebook(self)

    def __len__(self) -> int:
        return len(self._layers)

    def __getitem__(self, index: int | str | tuple[int | str, Any]) -> AttentionMatrix:
        if isinstance(index, tuple):
            if len(index) != 2:
                raise IndexError(f"a capture is indexed by [layer] or [layer, head], got {len(index)} indices")
            matrix = self[index[0]]
            layer, heads = self._layer(index[0]), index[1]
            if len(layer.heads) != layer.total:
                heads = _head_indices(heads, layer)
            part: AttentionMatrix = matrix if heads is Ellipsis else matrix[..., heads, :, :]
            return part
        layer = self._layer(index)
        if layer.name not in self._matrices or self._session is not None:  # it may have grown
            self._matrices[layer.name] = self._labels.labeled(layer)
            self._matrices[layer.name].origin = (self._whole or self)._origin(layer)
        return self._matrices[layer.name]

    def __iter__(self) -> Iterator[AttentionMatrix]:
        return (self[number] for number in range(len(self)))

    def __repr__(self) -> str:
        return _text(self._model, self._layers, self.missed)

    @property
    def _layers(self) -> list[CapturedLayer | RefusedLayer]:
        """As they are now, while the model runs."""
        return self._captured if self._session is None else self._session.layers

    def _origin(self, layer: CapturedLayer) -> Origin:
        """Where the weights of a layer come from; of models with an encoder and a decoder, its kind too."""
        two = any(CROSS.search(part) for name in self.layers for part in name.lower().split("."))
        kinds = {each.kind for each in self._layers if isinstance(each, CapturedLayer)} if two else set()
        whole = layer.matrix._whole.source.heads
        heads = list(layer.heads)
        if layer.shown is not None:  # of stored heads, those that are not shown have no number
            stored = dict(zip(layer.shown, layer.heads, strict=True))
            heads = [stored.get(place, -1) for place in range(whole)]
        index, kind = self.layers.index(layer.name), layer.kind if len(kinds) > 1 else ""
        number = index if layer.number is None else layer.number
        return Origin(self.name, index, kind, tuple(heads), number=number)

    def _part(self, kind: str, words: str) -> "Capture":
        layers = [layer for layer in self._layers if isinstance(layer, CapturedLayer) and layer.kind == kind]
        if not layers:
            raise ValueError(f"no layer of {self._model} is {words}; there are {', '.join(self.layers) or 'none'}")
        part = Capture(self._model, layers, self._labels, missed=self.missed, name=self.name)
        part._whole = self if self._whole is None else self._whole
        part._matrices = self._matrices
        return part

    def _layer(self, index: int | str) -> CapturedLayer:
        layers = self._layers
        if isinstance(index, str):
            names = [layer.name for layer in layers]
            if index not in names:
                raise KeyError(f"no layer {index!r}; there are {', '.join(names)}")
            index = names.index(index)
        if isinstance(index, bool) or not isinstance(index, int):
            raise TypeError(f"a layer is a number or a name, got {type(index).__name__}")
        if not -len(layers) <= index < len(layers):
            raise IndexError(f"there is no layer {index}: there are {len(layers)}, 0 to {len(layers) - 1}")
        layer = layers[index]
        if isinstance(layer, RefusedLayer):
            raise ValueError(f"{layer.name} cannot be shown: {layer.reason}")
        return layer


def _head_indices(heads: Any, layer: CapturedLayer) -> Any:
    """The indices of heads by their numbers in the model."""
    captured = ", ".join(map(str, layer.heads))
    listed = heads if isinstance(heads, list | tuple | range) else [heads]
    for head in listed:
        if isinstance(head, bool) or not isinstance(head, int) or head not in layer.heads:
            raise IndexError(f"head {head!r} of {layer.name} was not captured; captured are {captured}")
    places = [layer.heads.index(head) for head in listed]
    return places if listed is heads else places[0]


HEAD = ("", "layer", "heads", "queries × keys", "mechanism", "row sums off by")


def _text(model: str, layers: Sequence[CapturedLayer | RefusedLayer], missed: Sequence[Missed] = ()) -> str:
    """The text of a capture: all layers with sizes, mechanism and self-check, and what was missed."""
    end = [f"not captured: {listed(missed)}"] if missed else []
    if not layers:
        return "\n".join([f"<Capture of {model}: nothing yet>", *end])
    rounded = [layer for layer in layers if isinstance(layer, CapturedLayer) and layer.rounded is not None]
    lines: list[tuple[str, ...]] = [(*HEAD, "rounding moved by") if rounded else HEAD]
    for number, layer in enumerate(layers):
        if isinstance(layer, RefusedLayer):
            lines.append((str(number), layer.name, "", "", f"refused: {layer.reason}", *[""] * (len(lines[0]) - 5)))
            continue
        size = f"{layer.queries:,} × {layer.keys:,}"
        heads = str(layer.total) if len(layer.heads) == layer.total else ",".join(map(str, layer.heads))
        cells = (str(number), layer.name, heads, size, layer.mechanism, f"{layer.off:.1e}")
        lines.append((*cells, "" if layer.rounded is None else f"{layer.rounded:.1e}") if rounded else cells)
    columns = range(len(lines[0]))
    widths = [max(len(line[column]) for line in lines if line[4][:7] != "refused") for column in columns]
    rows = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    note = ""
    if rounded:
        what = "queries and keys" if any(layer.weights is None for layer in rounded) else "weights"
        kinds = sorted({str(layer.query.dtype).removeprefix("torch.") for layer in rounded})
        note = f", {what} rounded to {', '.join(kinds)}"
    title = f"<Capture of {model}: {len(layers)} {'layer' if len(layers) == 1 else 'layers'}{note}>"
    return "\n".join([title, *(row.rstrip() for row in rows), *end])


def _row_tokens(tokens: Any, batch: int) -> Any:
    """The tokens of one batch row, where each has its own."""
    return tokens[batch] if tokens and not isinstance(tokens[0], str) else tokens
