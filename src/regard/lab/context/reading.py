"""Sentences in which one word has one of two senses, as MiniLM reads them.

`parsed` reads the file of sentences, `read` runs the model and records the state of every token after every layer, and
`Reading` measures whether the vectors of one word are near each other where its sense is the same.
"""

import re
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from regard import models
from regard.cached import cached_property
from regard.inspection.capture import capture
from regard.inspection.interventions import Change, intervene
from regard.spec.masks import Lengths

MARKS = re.compile(r"\[(?P<word>[^\]]+)\]|\*(?P<cue>[^*]+)\*")
Span = tuple[int, int]
Heads = dict[int, list[int]]  # by layer


@dataclass(frozen=True)
class SenseSentence:
    """A text, the place of its ambiguous word, and those of the cues, the words that tell the sense (in characters)."""

    word: str
    sense: str
    text: str
    at: Span
    cues: tuple[Span, ...]


def parsed(line: str) -> SenseSentence:
    """A line `word | sense | text`, the word in [brackets] and its cues in *stars*."""
    fields = line.split(" | ")
    if len(fields) != 3:
        raise ValueError(f"a line is 'word | sense | text', got {line!r}")
    word, sense, marked = fields
    text, end = "", 0
    places: dict[str, list[Span]] = {"word": [], "cue": []}
    for mark in MARKS.finditer(marked):
        text += marked[end : mark.start()]
        kind = mark.lastgroup
        assert kind is not None
        places[kind].append((len(text), len(text) + len(mark[kind])))
        text, end = text + mark[kind], mark.end()
    text += marked[end:]
    if [text[slice(*span)].lower() for span in places["word"]] != [word] or not places["cue"]:
        raise ValueError(f"a text has [{word}] once, and at least one *cue*, got {marked!r}")
    return SenseSentence(word, sense, text, places["word"][0], tuple(places["cue"]))


@cache
def sentences() -> tuple[SenseSentence, ...]:
    """All sentences of the package, word by word and sense by sense."""
    text = (resources.files("regard.lab.context") / "senses.txt").read_text(encoding="utf-8")
    return tuple(parsed(line) for line in text.splitlines() if line and not line.startswith("#"))


def words(chosen: tuple[SenseSentence, ...]) -> tuple[str, ...]:
    """The ambiguous words, in order."""
    return tuple(dict.fromkeys(each.word for each in chosen))


def minilm() -> Any:
    """MiniLM as `regard.models` has it; if it was not fetched, the error says how to get it."""
    return models.load(models.path("minilm"))


class RemainingBlocks(nn.Module):
    """The blocks of an encoder from one on: what is before them need not be computed again."""

    def __init__(self, blocks: nn.ModuleList, first: int) -> None:
        super().__init__()
        self.blocks = blocks[first:]

    def forward(self, x: Tensor, mask: Lengths) -> Tensor:
        for block in self.blocks:
            x = block(x, mask=mask)
        return x


@dataclass(frozen=True)
class Senses:
    """One number for each word: the share of its sentences whose nearest neighbor has the same sense; by how much
    sentences of one sense are closer (cosine) than those of different senses; and how close they are on average."""

    accuracy: Tensor
    separation: Tensor
    closeness: Tensor


def closeness(vectors: Tensor) -> Tensor:
    """Cosines (sentence, sentence), to twelve digits: vectors that are the same are then equally near."""
    unit = normalize(vectors.double(), dim=-1)
    return (unit @ unit.T).round(decimals=12)


@dataclass(frozen=True)
class Reading:
    """`states` are (layer, sentence, token, width), the first before any attention; `weights` are of the ambiguous
    words, (layer, sentence, head, key). `cues` and `others` are (sentence, token): the words that tell the sense, and
    all that are neither these nor the word itself. `at` is the token of the word."""

    encoder: Any
    sentences: tuple[SenseSentence, ...]
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

    def embeddings(self) -> Tensor:
        """(sentence, token, width): the embedding of every token, without its position."""
        rows: Tensor = self.encoder.model.tokens.weight[self.ids]
        return rows

    @torch.no_grad()
    def changed(self, change: Change, heads: Heads | None = None) -> Tensor:
        """The word's vectors after the last layer when some heads, or all, are changed; the rest is not recomputed."""
        stack = self.encoder.model.encoder.blocks
        heads = heads or {layer: list(range(block.attention.heads)) for layer, block in enumerate(stack)}
        first = min(heads)
        rest = RemainingBlocks(stack, first).eval()
        with ExitStack() as blocks:
            for layer, chosen in heads.items():
                blocks.enter_context(intervene(rest, change, layers=layer - first, heads=chosen))
            states = rest(self.states[first], Lengths(self.lengths))
        return self.vectors(states)

    @cached_property
    def groups(self) -> list[tuple[str, Tensor, Tensor]]:
        """Each word, its sentences, and which pairs of them share their sense."""
        listed = []
        for word in words(self.sentences):
            rows = [row for row, each in enumerate(self.sentences) if each.word == word]
            sense = [self.sentences[row].sense for row in rows]
            same = torch.tensor([[one == other for other in sense] for one in sense])
            listed.append((word, torch.tensor(rows), same))
        return listed

    def senses(self, vectors: Tensor) -> Senses:
        """Senses by vectors (sentence, width). Neighbors that are equally near count by their share."""
        columns = []
        for _, rows, same in self.groups:
            near = closeness(vectors[rows])
            own = torch.eye(len(rows), dtype=torch.bool)
            nearest = near.masked_fill(own, -2.0)
            tied = nearest == nearest.amax(1, keepdim=True)
            right = ((tied & same).sum(1) / tied.sum(1)).double().mean()
            columns.append((right, near[same & ~own].mean() - near[~same].mean(), near[~own].mean()))
        return Senses(*(torch.stack(column) for column in zip(*columns, strict=True)))

    @cached_property
    def chance(self) -> float:
        """How often a neighbor drawn at random has the same sense."""
        shares = [(same.sum() - len(rows)) / (len(rows) * (len(rows) - 1)) for _, rows, same in self.groups]
        return float(torch.stack(shares).double().mean())

    @cached_property
    def cue_weight(self) -> Tensor:
        """(layer, head): the share of the word's attention that goes to the words which tell its sense."""
        return (self.weights * self.cues[None, :, None]).sum(-1).mean(1).double()

    @property
    def uniform(self) -> float:
        """That share if attention were the same everywhere."""
        return float((self.cues.sum(1) / self.lengths).double().mean())

    def readers(self, count: int) -> Heads:
        """The heads that give most weight to the cues, by layer."""
        by_layer: Heads = {}
        for place in sorted(self.cue_weight.flatten().topk(count).indices.tolist()):
            layer, head = divmod(place, self.cue_weight.shape[1])
            by_layer.setdefault(layer, []).append(head)
        return by_layer

    def other_heads(self, heads: Heads, generator: torch.Generator) -> Heads:
        """As many other heads of the same layers, drawn at random."""
        drawn = {}
        for layer, chosen in heads.items():
            free = [head for head in range(self.weights.shape[2]) if head not in chosen]
            order = torch.randperm(len(free), generator=generator).tolist()
            drawn[layer] = [free[place] for place in order[: len(chosen)]]
        return drawn

    def other_words(self, generator: torch.Generator) -> Tensor:
        """(sentence, token): as many other words as a sentence has cues, drawn at random."""
        order = torch.rand(self.others.shape, generator=generator).masked_fill(~self.others, 2.0)
        rank = order.argsort(1).argsort(1)
        return (rank < self.cues.sum(1, keepdim=True)) & self.others


@torch.no_grad()
def read(encoder: Any, chosen: tuple[SenseSentence, ...]) -> Reading:
    """Have the encoder read the sentences."""
    encodings = [encoder.tokenizer.encode(each.text) for each in chosen]
    ids, lengths = encoder.tokens([each.text for each in chosen])
    rows, at = torch.arange(len(ids)), torch.zeros(len(ids), dtype=torch.long)
    cues = torch.zeros_like(ids, dtype=torch.bool)
    others = torch.zeros_like(cues)
    for row, (encoding, each) in enumerate(zip(encodings, chosen, strict=True)):
        word = _tokens(encoding, [each.at])
        at[row] = word[0]
        others[row, 1 : int(lengths[row]) - 1] = True  # all but [CLS] and [SEP]
        others[row, word] = False
        cues[row, _tokens(encoding, list(each.cues))] = True
    states: list[Tensor] = []
    stack = encoder.model.encoder
    hooks = [block.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0])) for block in stack.blocks]
    hooks.append(stack.register_forward_hook(lambda _, __, output: states.append(output)))
    try:
        attention = capture(encoder, ids, lengths)
    finally:
        for hook in hooks:
            hook.remove()
    weights = torch.stack([layer.dense()[rows, :, at] for layer in attention])
    tokens = tuple(tuple(encoding.tokens) for encoding in encodings)
    return Reading(encoder, chosen, tokens, ids, lengths, at, cues, others & ~cues, torch.stack(states), weights)


def _tokens(encoding: Any, spans: list[Span]) -> list[int]:
    """The tokens of some places in a text."""
    listed = {encoding.char_to_token(place) for span in spans for place in range(*span)}
    return sorted(token for token in listed if token is not None)
