"""Reading: sentences that MiniLM has read, with the state of every token after every layer."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.inspection.capture import capture
from regard.inspection.interventions import Change, intervene
from regard.lab.context.sentences import Sentence, Span
from regard.spec.masks import Lengths

Heads = dict[int, list[int]]
"""Heads by layer."""


def minilm() -> Any:
    """MiniLM as `regard.models` has it; where it has not, the error says how to get it."""
    # reached through the loaded package: the lab stands beside the models and may not import them
    models = sys.modules["regard"].models
    return models.load(models.path("minilm"))


class Rest(nn.Module):
    """The blocks of an encoder from one on: what is before them need not be computed again."""

    def __init__(self, blocks: nn.ModuleList, first: int) -> None:
        super().__init__()
        self.blocks = blocks[first:]

    def forward(self, x: Tensor, mask: Lengths) -> Tensor:
        """The states after the last layer from those before the first of these."""
        for block in self.blocks:
            x = block(x, mask=mask)
        return x


@dataclass(frozen=True)
class Reading:
    """`states` are (layer, sentence, token, width), the first before any attention; `weights` are of the ambiguous
    words, (layer, sentence, head, key). `cues` and `others` are (sentence, token): the words that tell the sense, and
    all that are neither these nor the word itself. `at` is the token of the word."""

    encoder: Any
    sentences: tuple[Sentence, ...]
    tokens: tuple[tuple[str, ...], ...]
    ids: Tensor
    lengths: Tensor
    at: Tensor
    cues: Tensor
    others: Tensor
    states: Tensor
    weights: Tensor

    def vectors(self, states: Tensor) -> Tensor:
        """(sentence, width) of the ambiguous word, from states (sentence, token, width)."""
        return states[torch.arange(len(self.ids)), self.at]

    def static(self) -> Tensor:
        """The word's own embedding, the same in every sentence."""
        rows: Tensor = self.encoder.model.tokens.weight[self.ids[torch.arange(len(self.ids)), self.at]]
        return rows

    @torch.no_grad()
    def changed(self, change: Change, heads: Heads | None = None) -> Tensor:
        """The word's vectors after the last layer when some heads, or all, are changed; the rest is not recomputed."""
        stack = self.encoder.model.encoder.blocks
        heads = (
            {layer: list(range(block.attention.heads)) for layer, block in enumerate(stack)} if heads is None else heads
        )
        first = min(heads)
        rest = Rest(stack, first).eval()
        with ExitStack() as blocks:
            for layer, chosen in heads.items():
                blocks.enter_context(intervene(rest, change, layers=layer - first, heads=chosen))
            found = rest(self.states[first], Lengths(self.lengths))
        return self.vectors(found)


@torch.no_grad()
def read(encoder: Any, chosen: tuple[Sentence, ...]) -> Reading:
    """Have the encoder read the sentences."""
    cut = [encoder.tokenizer.encode(each.text) for each in chosen]
    ids, lengths = encoder.tokens([each.text for each in chosen])
    at = torch.tensor([_tokens(found, [each.at])[0] for found, each in zip(cut, chosen, strict=True)])
    cues = torch.zeros_like(ids, dtype=torch.bool)
    others = torch.zeros_like(cues)
    for row, (found, each) in enumerate(zip(cut, chosen, strict=True)):
        cues[row, _tokens(found, list(each.cues))] = True
        others[row, 1 : int(lengths[row]) - 1] = True  # all but [CLS] and [SEP]
        others[row, _tokens(found, [each.at])] = False
    kept: list[Tensor] = []
    stack = encoder.model.encoder
    hooks = [block.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0])) for block in stack.blocks]
    hooks.append(stack.register_forward_hook(lambda _, __, output: kept.append(output)))
    try:
        attention = capture(encoder, ids, lengths)
    finally:
        for hook in hooks:
            hook.remove()
    rows = torch.arange(len(ids))
    weights = torch.stack([layer.dense()[rows, :, at] for layer in attention])
    return Reading(
        encoder,
        chosen,
        tuple(tuple(found.tokens) for found in cut),
        ids,
        lengths,
        at,
        cues,
        others & ~cues,
        torch.stack(kept),
        weights,
    )


def _tokens(found: Any, spans: list[Span]) -> list[int]:
    """The tokens of some places in a text."""
    listed = {found.char_to_token(place) for span in spans for place in range(*span)}
    return sorted(token for token in listed if token is not None)
