"""What one map shows: a capture view holds layer views, each with its heads and tokens."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from regard.cached import cached_property
from regard.inspection.capture import Capture
from regard.inspection.capture.layer import CapturedLayer
from regard.inspection.matrix import AttentionMatrix
from regard.inspection.matrix.source import Computed, Stored
from regard.inspection.weights_file import WeightsFile
from regard.map.levels import Levels
from regard.map.stored_view import stored_causal
from regard.map.words import AxisWords, words_of
from regard.spec.masks import And, Causal, Mask


@dataclass(frozen=True, eq=False)
class LayerView:
    """The heads of one layer, for every batch row; they share sizes and tokens."""

    name: str
    matrix: AttentionMatrix
    head_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not self.matrix.shape[-2] or not self.matrix.shape[-1] or not self._lead.numel():
            raise ValueError(f"{self.name} has no pairs to show: its shape is {self.matrix.shape}")

    @property
    def queries(self) -> int:
        """Rows."""
        return self.matrix.shape[-2]

    @property
    def keys(self) -> int:
        """Columns."""
        return self.matrix.shape[-1]

    @property
    def heads(self) -> int:
        """Of each batch row."""
        return self._lead.shape[1]

    @property
    def batch(self) -> int:
        """Batch rows; further leading axes count as such."""
        return self._lead.shape[0]

    @cached_property
    def levels(self) -> Levels:
        """Of its tiles."""
        return Levels(self.queries, self.keys)

    @property
    def _lead(self) -> torch.Tensor:
        """Numbers of the matrix's leading axes, (batch, head)."""
        lead = self.matrix.shape[:-2]
        return torch.arange(torch.Size(lead).numel(), device="cpu").view(-1, lead[-1] if lead else 1)

    def head(self, batch: int, head: int) -> AttentionMatrix:
        """The matrix of one head, (query, key)."""
        number = int(self._lead[batch, head])
        place = []
        for size in reversed(self.matrix.shape[:-2]):
            number, own = divmod(number, size)
            place.append(own)
        head_matrix: AttentionMatrix = self.matrix[tuple(reversed(place))] if place else self.matrix
        return head_matrix

    @cached_property
    def causal(self) -> bool:
        """Whether no query sees a key behind it; of stored weights, whether the first head looks like that."""
        source = self.matrix._source
        if isinstance(source, Stored):
            return stored_causal(source, int(self.matrix._maps.reshape(-1)[0]))
        return isinstance(source, Computed) and _causal(source.request.mask)

    def query_start(self, batch: int = 0) -> int:
        """Where the first query stands among the keys."""
        source = self.matrix._whole.source
        if not isinstance(source, Computed):
            return max(0, self.keys - self.queries)
        starts = source.request.plane.starts
        row = int(self.matrix._lead.reshape(-1)[int(self._lead[batch, 0])]) // source.heads
        return int(starts[0] if starts.numel() == 1 else starts[row])

    @property
    def same_text(self) -> bool:
        """Whether queries and keys are the same tokens, at the same places."""
        tokens = self.tokens("query")
        return tokens is not None and tokens == self.tokens("key") and self.query_start() == 0

    def length(self, axis: str) -> int:
        """Of an axis, "query" or "key"."""
        return self.queries if axis == "query" else self.keys

    def words(self, axis: str, batch: int = 0) -> AxisWords | None:
        """The words at an axis, "query" or "key", of a batch row."""
        tokens = self.tokens(axis, batch)
        return None if tokens is None else words_of(tokens)

    def word(self, axis: str, place: int, batch: int = 0) -> str | None:
        """The label of a token."""
        words = self.words(axis, batch)
        return None if words is None else words.labels[place]

    def tokens(self, axis: str, batch: int = 0) -> tuple[str, ...] | None:
        """The tokens at an axis, "query" or "key", of a batch row."""
        if batch not in self._tokens:
            one = self.head(batch, 0)  # batch rows may have words of their own
            self._tokens[batch] = (one.query_tokens, one.key_tokens)
        return self._tokens[batch][axis == "key"]

    @cached_property
    def _tokens(self) -> dict[int, tuple[tuple[str, ...] | None, tuple[str, ...] | None]]:
        return {}


@dataclass(frozen=True, eq=False)
class CaptureView:
    """Layers under one title. `folder` is where their coarse levels are stored, None the usual place; `notes` are
    sentences that the page shows with it."""

    layers: tuple[LayerView, ...]
    title: str = "attention"
    capture: Capture | None = None
    folder: Path | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("a capture view needs at least one layer, got none")

    @classmethod
    def of(
        cls, shown: "CaptureView | Capture | AttentionMatrix | WeightsFile | Iterable[AttentionMatrix]", title: str = ""
    ) -> "CaptureView":
        """A capture view of a capture, of a matrix, or of several; weights of a file with four axes have layers."""
        if isinstance(shown, CaptureView):
            return shown
        if isinstance(shown, Capture):
            names = [name for name in shown.layers if name not in shown.refused]
            layers = tuple(LayerView(name, shown[name], _numbers(shown, name)) for name in names)
            return cls(layers, title or "capture", shown)
        if isinstance(shown, AttentionMatrix):
            return cls((LayerView("attention", shown),), title or "attention")
        if isinstance(shown, WeightsFile):
            return cls(_layers(shown.matrix), title or "attention", notes=shown.notes)
        if isinstance(shown, Sequence) and shown and all(isinstance(part, AttentionMatrix) for part in shown):
            layers = tuple(LayerView(f"layer {number}", part) for number, part in enumerate(shown))
            return cls(layers, title or "attention")
        raise TypeError(
            f"a map shows a Capture, an AttentionMatrix or a list of these, got {type(shown).__name__}; "
            "for queries and keys write regard.matrix(query, key, ...)"
        )

    def with_layers_of(self, other: "CaptureView") -> "CaptureView":
        """Both under one title, so that their heads can be compared; layers are named after what they are of."""
        layers = (
            replace(layer, name=f"{view.title} · {layer.name}") for view in (self, other) for layer in view.layers
        )
        title = f"{self.title} and {other.title}"
        return CaptureView(tuple(layers), title, None, self.folder, tuple(dict.fromkeys([*self.notes, *other.notes])))


def _layers(weights: AttentionMatrix) -> tuple[LayerView, ...]:
    """(layer, …, head, query, key) as layers; fewer axes as one."""
    if weights.ndim < 4:
        return (LayerView("attention", weights),)
    return tuple(LayerView(f"layer {number}", weights[number]) for number in range(weights.shape[0]))


def _numbers(shown: Capture, name: str) -> tuple[str, ...] | None:
    """The heads by their numbers in the model, where only some were captured."""
    matrix = shown[name]
    numbers = next(
        tuple(layer.heads) for layer in shown._captured if layer.name == name and isinstance(layer, CapturedLayer)
    )
    if numbers == tuple(range(len(numbers))) or len(numbers) != matrix.shape[-3]:
        return None
    return tuple(f"head {number}" for number in numbers)


def _causal(mask: Mask) -> bool:
    if isinstance(mask, And):
        return _causal(mask.left) or _causal(mask.right)
    return isinstance(mask, Causal)
