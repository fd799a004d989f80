"""Real models for the last chapter: heads of MiniLM over a text, and SmolLM2's next token with heads switched off.

Models are loaded when they are first asked for. One request computes at a time; one that waits and whose page has gone
on, or has asked for something else, is given up.
"""

import base64
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch

from regard.inspection.capture import Capture, capture
from regard.inspection.interventions import Ablate
from regard.inspection.interventions.block import intervene
from regard.inspection.tokens import token_labels
from regard.map.jobs import RequestBody, RequestError, Stop, Stopped
from regard.models.load import load
from regard.models.text import TextGenerator
from regard.nn import MultiHeadAttention
from regard.nn.generate import likeliest

LETTERS, TOKENS = 600, 64  # of a text
SHOWN, KEPT = 12, 8  # next tokens that are listed; texts whose heads or logits are kept
WAIT = 0.02  # seconds between two looks at whether a waiting request is still wanted


class Live:
    """Answers `heads`, `next` and `models`."""

    quick = frozenset({"models"})

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[str, Any] = {}
        self._captures: OrderedDict[str, Capture] = OrderedDict()
        self._kept: OrderedDict[str, torch.Tensor] = OrderedDict()  # logits with all heads
        self._answers: dict[str, Callable[[RequestBody, Stop], dict[str, Any]]] = {
            "models": self._state,
            "heads": self._heads,
            "next": self._next,
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Of all requests."""
        return tuple(self._answers)

    def answer(self, name: str, body: object, stop: Stop) -> dict[str, Any]:
        """The answer as JSON holds it."""
        if name not in self._answers:
            raise RequestError(f"there is no question {name[:40]!r}", 404)
        return self._answers[name](RequestBody(body), stop)

    def close(self) -> None:
        """Nothing runs in the background."""

    def _alone(self, stop: Stop) -> None:
        """Take the lock; a request that is stopped while it waits is given up."""
        while not self._lock.acquire(timeout=WAIT):
            stop.check()
        try:
            stop.check()
        except Stopped:
            self._lock.release()
            raise

    def _model(self, name: str) -> Any:
        if name not in self._models:
            try:
                self._models[name] = load(name)
            except (ImportError, OSError, ValueError) as error:
                raise RequestError(f"{error}", 503) from None
        return self._models[name]

    def _state(self, body: RequestBody, stop: Stop) -> dict[str, Any]:
        return {"loaded": sorted(self._models)}

    def _heads(self, body: RequestBody, stop: Stop) -> dict[str, Any]:
        """Weights of all heads of one layer, (head, query, key) in float16, and the tokens."""
        text = body.text("text", LETTERS)
        self._alone(stop)
        try:
            model = self._model("minilm")
            layers, heads = _sizes(model)
            layer = body.number("layer", 0, layers - 1, 0)
            found = self._captures.get(text)
            if found is None:
                _check_length(len(model.tokenizer.encode(text).ids))
                with torch.no_grad():
                    found = self._captures[text] = capture(model, text)
                while len(self._captures) > KEPT:
                    self._captures.popitem(last=False)
            stop.check()
            matrix = found[layer]
            weights = np.asarray(matrix[0], dtype="<f2")
            tokens = list(token_labels(matrix.query_tokens or ()))
        finally:
            self._lock.release()
        packed = base64.b64encode(weights.tobytes()).decode("ascii")
        return {"tokens": tokens, "layers": layers, "heads": heads, "layer": layer, "weights": packed}

    def _next(self, body: RequestBody, stop: Stop) -> dict[str, Any]:
        """The likeliest next tokens with and without the heads that are switched off."""
        text = body.text("text", LETTERS)
        temperature = body.number("temperature", 1, 1000, 100) / 100  # in hundredths
        top_k = body.number("top_k", 1, 1000, 1000)
        self._alone(stop)
        try:
            model: TextGenerator = self._model("smollm2")
            ids = model.tokens(text)
            _check_length(ids.shape[1])
            layers, heads = _sizes(model)
            off = _switched_off(body, layers, heads)
            stop.check()
            before = self._kept.get(text)
            if before is None:
                before = self._kept[text] = self._logits(model, ids, {})
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            stop.check()
            after = self._logits(model, ids, off) if off else before
        finally:
            self._lock.release()
        first, second = (likeliest(logits / temperature, top_k, None).softmax(-1) for logits in (before, after))
        best = torch.stack([first, second]).amax(0).topk(min(SHOWN, top_k)).indices
        listed: list[int] = best[second[best].argsort(descending=True)].tolist()
        pieces, tokens = _labels(model, listed), _labels(model, ids[0].tolist())
        return {
            "tokens": tokens,
            "layers": layers,
            "heads": heads,
            "next": [
                {"token": piece, "before": float(first[each]), "after": float(second[each])}
                for piece, each in zip(pieces, listed, strict=True)
            ],
        }

    @staticmethod
    def _logits(model: TextGenerator, ids: torch.Tensor, off: dict[int, list[int]]) -> torch.Tensor:
        """Of the token after the last, as float32."""
        with torch.no_grad(), ExitStack() as blocks:
            for layer, heads in off.items():
                blocks.enter_context(intervene(model, Ablate(), layers=layer, heads=heads))
            last = torch.tensor([ids.shape[1] - 1], dtype=torch.int64, device=ids.device)
            logits: torch.Tensor = model.model(ids, at=last)
            return logits[0, 0].float()


def _labels(model: TextGenerator, ids: list[int]) -> list[str]:
    return list(token_labels([str(model.tokenizer.decode([each], skip_special_tokens=False)) for each in ids]))


def _sizes(model: Any) -> tuple[int, int]:
    """Layers, and heads of each."""
    found = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    return len(found), found[0].heads


def _check_length(count: int) -> None:
    if count > TOKENS:
        raise RequestError(f"the text has {count} tokens; {TOKENS} fit here", 413)
    if count < 1:
        raise RequestError("there is no text")


def _switched_off(body: RequestBody, layers: int, heads: int) -> dict[int, list[int]]:
    """Heads by layer, from triples [layer, head, 0]."""
    chosen: dict[int, list[int]] = {}
    for layer, head, _ in body.triples("off", layers * heads):
        if not (0 <= layer < layers and 0 <= head < heads):
            raise RequestError(f"there is no head {head} in layer {layer}")
        chosen.setdefault(layer, []).append(head)
    return {layer: sorted(set(numbers)) for layer, numbers in chosen.items()}
