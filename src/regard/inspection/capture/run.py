"""capture: run a model once, or in a `with` block, and record its attention calls."""

import os
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard import checks
from regard.inspection.capture import file
from regard.inspection.capture.layer import (
    CHANNELS,
    CapturedLayer,
    RefusedLayer,
    TokenLabels,
    Tokens,
    patch_embeddings,
    patch_grid,
)
from regard.inspection.capture.result import Capture
from regard.inspection.capture.spill import AppendedTensor, SpillFile
from regard.inspection.capture.steps import LayerSteps, chosen, grouped, without_empty_slots
from regard.inspection.capture.text import is_text, name_of, text_input
from regard.inspection.files import form_of
from regard.inspection.hooks.call import (
    AttentionCall,
    ModuleNames,
    RunningModule,
    TensorCopies,
    check_weights,
    rounding_error,
)
from regard.inspection.hooks.intercept import accelerated, intercepting
from regard.inspection.hooks.missed import Missed, Watch, listed, warn
from regard.inspection.hooks.selection import Heads, Layers, LayerSelection

NOTHING = (
    "{} made no call of attention that can be intercepted: scaled_dot_product_attention, nn.MultiheadAttention, the "
    "attention interface of transformers, regard's attend, or a softmax of a product of activations, multiplied with "
    "values. If it computes weights otherwise, give them to AttentionMatrix.from_weights; if it was compiled, capture "
    "it before"
)
PARTLY = "{} ran attention that is not in this capture, so that c[0] may not be its first layer: {}. c.missed lists it"
HINT = "; if the model takes an argument of this name, write: with capture(model) as c: model(...)"


def capture(
    model: Any,
    *inputs: Any,
    tokens: Tokens | None = None,
    tokenizer: Any = None,
    layers: Layers = None,
    heads: Heads = None,
    dtype: torch.dtype | None = None,
    spill: str | os.PathLike[str] | int | None = None,
    **kw: Any,
) -> Capture:
    """The attention of `model(*inputs, **kw)`; without inputs, of all it computes in a `with` block.

    A text, or a list of texts, is read by the model's tokenizer, or by `tokenizer`, and gives the tokens; a second text
    is the other of a pair, or what a decoder reads. `model` may be a pipeline of transformers.

    The model's output is not changed by a bit. `tokens` label the queries and keys of layers that have as many: a list,
    one for each batch row, or two by "encoder" and "decoder". `layers` (numbers, names or patterns of names) and
    `heads` (numbers) are captured, by default all; `dtype` is the type in which queries and keys are stored. What is
    more than `spill` bytes, by default an eighth of the machine's memory, goes to a temporary file, or all to the file
    of that name, which `regard.load` opens. A model with arguments of these names is called in a `with` block.

    >>> import torch
    >>> layer = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    >>> c = capture(model, torch.randn(1, 10, 16))
    >>> c.layers
    ('layers.0.self_attn', 'layers.1.self_attn', 'layers.2.self_attn')
    >>> c[2, 0].shape
    (1, 10, 10)
    """
    reader = tokenizer
    if not isinstance(model, nn.Module) and isinstance(getattr(model, "model", None), nn.Module):  # a pipeline
        reader = getattr(model, "tokenizer", None) if tokenizer is None else tokenizer
        model = model.model
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a torch.nn.Module, got {type(model).__name__}; "
            "for a method of a model write: with capture(model) as c: model.generate(...)"
        )
    names = ModuleNames(model)
    if names.compiled is not None:
        raise ValueError(
            f"{names.compiled} is compiled, which leaves no call of attention to intercept; "
            "capture the model as it was before torch.compile (its _orig_mod)"
        )
    if isinstance(spill, bool) or not isinstance(spill, str | os.PathLike | int | None):
        raise TypeError(f"spill must be a path or a number of bytes, got {type(spill).__name__}")
    if isinstance(spill, int):
        checks.whole("spill", spill, 0)
    if dtype is not None and dtype not in checks.FLOATS:
        raise TypeError(f"dtype must be one of torch's float types, such as torch.bfloat16, got {dtype!r}")
    selection = LayerSelection.of(layers, heads, "captured", HINT)
    if selection.heads is not None:
        numbers = tuple(sorted(set(selection.heads)))
        if numbers[0] < 0:
            raise ValueError(
                f"heads count from 0, got {numbers[0]}; how many there are is not known before the model ran"
            )
        selection = replace(selection, heads=numbers)
    if is_text(inputs):
        inputs, keywords, read = text_input(model, inputs, reader)
        kw, tokens = {**keywords, **kw}, read if tokens is None else tokens
    elif tokenizer is not None:
        raise TypeError(f"a tokenizer reads texts, and there is none among the inputs{HINT}")
    session = CaptureSession(model, selection, dtype, spill)
    result = Capture(type(model).__name__, [], TokenLabels.of(tokens), session, name=name_of(model))
    if inputs or kw:
        given = (*inputs, *kw.values())
        images = [each for each in given if isinstance(each, Tensor) and each.ndim == 4 and each.is_floating_point()]
        session.image = (images[0].shape[-2], images[0].shape[-1]) if images else None
        with result:
            result.output = model(*inputs, **kw)
    return result


class CaptureSession:
    """An open capture: begins once and ends once.

    It checks that calls can be computed again, and stores them by layer in the order of their first call. A further
    call of a layer has a number: `encoder.0#2`.
    """

    def __init__(
        self,
        model: nn.Module,
        selection: LayerSelection,
        dtype: torch.dtype | None,
        spill: str | os.PathLike[str] | int | None,
    ) -> None:
        self._model, self._name, self._selection, self._dtype = type(model).__name__, name_of(model), selection, dtype
        self._path = Path(os.path.realpath(spill)) if isinstance(spill, str | os.PathLike) else None
        if self._path is not None:
            form_of(self._path, ("safetensors",))
            if not self._path.parent.is_dir():
                raise FileNotFoundError(f"spill: there is no folder {self._path.parent}; make it first")
        folder = None if self._path is None else self._path.parent
        self._spill = SpillFile(spill if isinstance(spill, int) else None, folder)
        self._copies = TensorCopies()
        self._steps: list[LayerSteps | RefusedLayer] = []
        self._tensors: list[AppendedTensor] = []  # of all steps
        self._paths: dict[str, int] = {}  # the modules that ran, selected or not, and their index
        self._latest: dict[str, LayerSteps | RefusedLayer] = {}
        self._counts: Counter[str] = Counter()  # of the layers of a module
        self._orders: dict[int, Tensor | None] = {}  # of the batch rows, by the index of the step
        self._watch, self._missed, self._block = Watch(model), tuple[Missed, ...](), ExitStack()
        self._begin: Callable[[], AbstractContextManager[None]] | None = partial(
            intercepting, model, self._record, self._watch, on_handwritten=self._record
        )
        self._embeddings = patch_embeddings(model)
        self.image: tuple[int, int] | None = None  # height and width of the model's input images, if known

    def begin(self) -> None:
        """Start to intercept calls."""
        if self._begin is None:
            raise RuntimeError("this capture is open; begin another with capture(model)")
        if accelerated():
            raise RuntimeError(
                "regard.accelerating() leaves attention to torch while it is captured, which would change the output; "
                "capture outside the block"
            )
        self._block.enter_context(self._begin())
        self._begin = None

    @property
    def layers(self) -> list[CapturedLayer | RefusedLayer]:
        """What was captured so far."""
        layers = [layer.captured() if isinstance(layer, LayerSteps) else layer for layer in self._steps]
        names = [layer.name for layer in layers]
        for number, layer in enumerate(layers if self._embeddings else ()):
            if isinstance(layer, CapturedLayer) and layer.known_kind != CHANNELS:
                grid = patch_grid(layer.name, names, layer.keys, self._embeddings, self.image)
                layers[number] = replace(layer, grid=grid)
        return layers

    @property
    def missed(self) -> tuple[Missed, ...]:
        """Attention that was not intercepted so far, in the selected layers."""
        return self._missed or tuple(each for each in self._watch.missed if self._selection.may_select(each.layer))

    def end(self, labels: TokenLabels, *, failed: bool) -> list[CapturedLayer | RefusedLayer]:
        """Remove the hooks; returns all layers, checked, and mapped from the file if one was named."""
        self._block.close()
        self._missed = self.missed
        # release the model and its tensors
        self._watch, self._copies = Watch(nn.Identity()), TensorCopies()
        if self._spill.file is not None:
            self._spill.close(self._tensors)
        if failed:
            return self.layers
        if self._paths and self._selection.layers is not None:
            self._selection.check(list(self._paths))
        layers = self.layers
        if not layers:
            also = f". Not captured: {listed(self.missed)}" if self.missed else ""
            raise ValueError(NOTHING.format(self._model) + also)
        refused = [layer for layer in layers if isinstance(layer, RefusedLayer)]
        if len(refused) == len(layers):
            raise ValueError(f"no layer of {self._model} can be shown; {refused[0].name}: {refused[0].reason}")
        if labels.rows:
            labels.check(layers)
        if self.missed:
            warn(PARTLY.format(self._model, listed(self.missed)))
        if self._path is None:
            return layers
        file.write(self._path, self._model, layers, labels, self.missed, self._name)
        return file.layers_in(self._path)

    def _record(self, read: Callable[[], AttentionCall]) -> None:
        """Store a call if one of the model's selected modules makes it."""
        module = self._watch.names.running()
        if module is None:
            return
        index = self._paths.setdefault(module.path, len(self._paths))
        if not self._selection.selects(index, module.path):
            return
        try:
            with torch.inference_mode(False), torch.no_grad():
                call = read()
                check_weights(call)
                self._store(module, grouped(call), None if self._selection.layers is None else index)
        except (TypeError, ValueError) as error:
            self._latest[module.path] = RefusedLayer(self._new_name(module.path), str(error))
            self._steps.append(self._latest[module.path])
        self._spill.spill_above_budget(self._tensors)

    def _store(self, module: RunningModule, call: AttentionCall, number: int | None) -> None:
        latest = self._latest.get(module.path)
        selected = chosen(call, self._selection.heads)
        if self._dtype is not None:
            query, key = (tensor.to(self._dtype) for tensor in (selected.call.query, selected.call.key))
            exact = None if selected.call.exact is None else selected.call.exact.to(self._dtype)
            selected = selected._replace(call=replace(selected.call, query=query, key=key, exact=exact))
        step = None
        if isinstance(latest, LayerSteps):
            stored = selected._replace(call=without_empty_slots(selected.call, len(latest.key)))
            step = latest.continuation(stored.call, module.generating)
        if isinstance(latest, LayerSteps) and step is not None:
            layer, order, keys = latest, step.order, stored.call.key.shape[-2]
            if step.new_keys:
                self._orders[latest.steps] = order
            else:  # keys that do not change do not show the order of beams; the self-attention before does
                order = self._orders.get(latest.steps)
            new = replace(stored.call, key=stored.call.key[..., keys - step.new_keys :, :])
            latest.append(self._copies.copy(new), keys, order)
        else:
            stored = selected._replace(call=without_empty_slots(selected.call, 0))
            copied = stored._replace(call=self._copies.copy(stored.call))  # before it is counted: a copy may be refused
            layer = LayerSteps(self._new_name(module.path), copied, number)
            self._latest[module.path] = layer
            self._steps.append(layer)
            self._tensors += layer.tensors
        if self._dtype is not None and torch.promote_types(self._dtype, call.query.dtype) != self._dtype:
            error = rounding_error(chosen(call, stored.heads).call, stored.call, stored.shown)
            layer.rounded = max(layer.rounded or 0.0, error)

    def _new_name(self, path: str) -> str:
        self._counts[path] += 1
        return path if self._counts[path] == 1 else f"{path}#{self._counts[path]}"
